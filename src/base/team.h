/* team.h - the threads that parallel loops run on: our loops, and loops of a library compiled for
 * OpenMP.
 *
 * Each thread that starts loops has its own team: created at its first loop, kept until the thread
 * ends. Between loops a worker spins for a few microseconds and then sleeps; a loop for fewer
 * workers leaves the others asleep.
 *
 * libgomp ends threads when a loop is smaller than the previous loop and starts them again for the
 * next: hundreds of times in a step, because oneDNN chooses a size for every kernel, and each costs
 * time and memory. So the program (src/program/openmp.c) defines the few entry points of libgomp
 * that oneDNN calls: loops that begin in the served library run on the team, all others are passed
 * on to libgomp. A program that links libplimsoll.a alone keeps libgomp's entry points, and
 * oneDNN's loops run on libgomp's threads.
 *
 * Loops do not nest: a loop that starts inside another runs on its caller alone.
 */
#ifndef PL_BASE_TEAM_H
#define PL_BASE_TEAM_H

#include "base/err.h"

/* Makes the calling thread's team large enough for n workers, including itself; returns its size,
 * fewer than n where the system gives no more threads. */
int pl_team_reach(int n);

/* Calls fn(data) on n workers at once, the calling thread being worker 0, and returns when all have
 * returned. n is at most the result of pl_team_reach; inside a loop n is ignored. Every worker
 * treats denormal numbers like the calling thread (fpmode.h). */
void pl_team_run(int n, void (*fn)(void *data), void *data);

/* Inside a loop: returns this worker in [0, pl_team_size()). Outside: 0 of 1. */
int pl_team_index(void);
int pl_team_size(void);
/* Also true in a loop of libgomp. */
bool pl_team_inside(void);

/* From here on, loops that start in the shared library that contains this address run on the team;
 * only the first library counts. False when the address is not in a shared library. */
bool pl_team_serve(const void *code);

/* ---- for the entry points of src/program/openmp.c ---------------------------------------- */
/* Returns whether the address lies in the served library. */
bool pl_team_serves(const void *code);
/* Returns whether the calling thread is in a loop of a team. */
bool pl_team_in_loop(void);
/* Sets the answer of pl_team_in_loop for the calling thread; returns the previous one. */
bool pl_team_set_in_loop(bool inside);
/* Inside a loop: waits until all its workers have called it. */
void pl_team_barrier(void);

#endif

/* host_link.h - rates of links to host memory and to disks, by name (host_links.def). */
#ifndef PL_PLAN_COST_HOST_LINK_H
#define PL_PLAN_COST_HOST_LINK_H

#include "base/err.h"

typedef struct pl_host_link {
    const char *name, *about;
    double up, down; /* bytes a second: to the GPU or from disk; from the GPU or to disk */
    double move_ns;  /* fixed time of a move */
} pl_host_link;

/* NULL: no such name. */
const pl_host_link *pl_host_link_find(const char *name);
const pl_host_link *pl_disk_link_find(const char *name);
/* Returns the link that a GPU of this profile or driver's name usually has. */
const pl_host_link *pl_host_link_of_card(const char *card);

#endif

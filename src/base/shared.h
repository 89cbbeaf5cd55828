/* shared.h - functions that plug-ins take from the program that opens them.
 *
 * A plug-in (cuda/) is linked without the engine and uses the engine's functions in the running
 * program, which exports the functions declared between BEGIN and END.
 */
#ifndef PL_BASE_SHARED_H
#define PL_BASE_SHARED_H

#if defined(__cplusplus)
# define PL_SHARED_BEGIN extern "C" {
# define PL_SHARED_END   }
#else
# define PL_SHARED_BEGIN _Pragma("GCC visibility push(default)")
# define PL_SHARED_END   _Pragma("GCC visibility pop")
#endif

#endif

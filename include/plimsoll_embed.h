/* plimsoll_embed.h - text files as part of a program: presets, templates, pages, kernel source.
 *
 *     PL_EMBED(page, "cli/report/page.html");     static text: const char page[], ends with 0
 *
 * The path is relative to the folder that the compiler runs in. The compiler does not report the
 * file as a dependency (-MMD), so make needs a rule for it: in Plimsoll's own Makefile an object
 * that embeds files depends on every file beside its source and below that folder.
 *
 * Presets of a recipe, one line each, from FOLDER/name.yaml:
 *
 *     #define PL_PRESETS_IN "presets/"
 *     #define PRESETS(P)                                   \
 *         P(tiny, "tiny", "seconds on a CPU")              \
 *         P(full_size, "full-size", "needs a GPU of 24 GB")
 *     PRESETS(PL_PRESET_EMBED)
 *     static const pl_preset presets[] = {PRESETS(PL_PRESET_ROW){0}};
 */
#ifndef PLIMSOLL_EMBED_H
#define PLIMSOLL_EMBED_H

#if defined(__cplusplus)
# define PL_EMBED_EXTERN extern "C"
#else
# define PL_EMBED_EXTERN extern
#endif

/* Defines `const char symbol[]`, local to this source file: the bytes of the file and a 0. */
#define PL_EMBED(symbol, path)                                                                     \
 __asm__(".pushsection .rodata\n" #symbol ":\n"                                                    \
         ".incbin \"" path "\"\n"                                                                  \
         ".byte 0\n"                                                                               \
         ".popsection\n");                                                                         \
 PL_EMBED_EXTERN const char symbol[] __attribute__((visibility("hidden")))

/* One preset: an identifier, its name (also the file's, without .yaml), and one line about it. */
#define PL_PRESET_EMBED(id, name, about) PL_EMBED(preset_##id, PL_PRESETS_IN name ".yaml");
#define PL_PRESET_ROW(id, name, about)   {name, about, preset_##id},

/* One source file of a recipe (pl_recipe.sources): an identifier and the path below PL_SOURCES_IN.
 */
#define PL_SOURCE_EMBED(id, name) PL_EMBED(source_##id, PL_SOURCES_IN name);
#define PL_SOURCE_ROW(id, name)   {name, source_##id},

#endif

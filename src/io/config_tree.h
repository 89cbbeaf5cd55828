/* config_tree.h - values of a configuration that are trees, for code inside the library. */
#ifndef PL_IO_CONFIG_TREE_H
#define PL_IO_CONFIG_TREE_H

#include "io/yaml.h"
#include "plimsoll_config.h"

/* Returns the tree of a key of type PL_CONFIG_TREE, NULL when the value is null. Borrowed until the
 * config changes. */
const pl_yaml *pl_config_tree(const pl_config *c, const char *key);
/* Returns the same tree, to be changed in place; memory for it comes from the config. NULL when out
 * of memory. */
pl_yaml *pl_config_tree_edit(pl_config *c, const char *key);
/* Returns the file that the locations of the tree's nodes refer to. */
const char *pl_config_tree_file(const pl_config *c, const char *key);

/* Sets the keys of a mapping, like a file named `file`. dry: only checks them. */
pl_status pl_config_apply(pl_config *c, const char *file, const pl_yaml *mapping,
                          bool dry) PL_MUST_USE;
/* Whether the last load or override set this key. */
bool pl_config_is_newest(const pl_config *c, const char *key);
/* PL_ERR_CONFIG with the location of the node. */
pl_status pl_config_fail_at(const char *file, const pl_yaml *node, const char *fmt, ...)
    PL_PRINTF(3, 4);
/* Sets *text to the node on one line; the caller frees it with pl_text_free. */
pl_status pl_yaml_print(const pl_yaml *node, char **text) PL_MUST_USE;

#endif

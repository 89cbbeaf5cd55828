/* odd_net.h - the recipe of random networks. */
#ifndef PL_TESTS_ODD_NET_H
#define PL_TESTS_ODD_NET_H

#include "plimsoll_nn.h"
#include "plimsoll_recipe.h"

/* The network of the key `net`, with its loss, in m. */
pl_val odd_network(pl_builder *b, pl_nn *m);

PL_API const pl_recipe *pl_recipe_entry(void);

#endif

/* odd_net.h - the recipe of drawn networks. */
#ifndef PL_TESTS_ODD_NET_H
#define PL_TESTS_ODD_NET_H

#include "plimsoll_recipe.h"

PL_API const pl_recipe *pl_recipe_entry(void);

#endif

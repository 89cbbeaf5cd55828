/* host_link.c - see host_link.h. */
#include "plan/cost/host_link.h"

#include "plan/cost/cost_card.h"

#include <string.h>

static const pl_host_link host_links[] = {
#define PL_HOST_LINK(name, about, up, down, us) {name, about, (up)*1e9, (down)*1e9, (us)*1e3},
#define PL_DISK_LINK(name, about, up, down, us)
#include "plan/cost/host_links.def"
#undef PL_HOST_LINK
#undef PL_DISK_LINK
};
static const pl_host_link disk_links[] = {
#define PL_HOST_LINK(name, about, up, down, us)
#define PL_DISK_LINK(name, about, up, down, us) {name, about, (up)*1e9, (down)*1e9, (us)*1e3},
#include "plan/cost/host_links.def"
#undef PL_HOST_LINK
#undef PL_DISK_LINK
};

static const pl_host_link *find(const pl_host_link *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0) return &list[i];
    return NULL;
}

const pl_host_link *pl_host_link_find(const char *name)
{
    return find(host_links, sizeof host_links / sizeof *host_links, name);
}

const pl_host_link *pl_disk_link_find(const char *name)
{
    return find(disk_links, sizeof disk_links / sizeof *disk_links, name);
}

const pl_host_link *pl_host_link_of_card(const char *card)
{
    static const struct {
        const char *card, *link;
    } usual[] = {{"t4", "pcie3x16"},      {"rtx4070-laptop", "pcie4x8"}, {"rtx3090", "pcie4x16"},
                 {"rtx4090", "pcie4x16"}, {"a100", "pcie4x16"},          {"h100", "pcie5x16"},
                 {"h200", "pcie5x16"},    {"b200", "pcie5x16"}};
    const pl_card *c = card ? pl_card_find(card) : NULL;
    for (size_t i = 0; c && i < sizeof usual / sizeof *usual; i++)
        if (strcmp(c->name, usual[i].card) == 0) return pl_host_link_find(usual[i].link);
    return pl_host_link_find("pcie4x16");
}

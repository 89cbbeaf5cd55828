/* test_cli_plan.c - what `plimsoll plan` says, against what planning again finds. */
#include "cli_run.h"
#include "test.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NET "cloud/tiny batch=8 frames=2 height=192 width=192 "

static json_t *planned(const char *args, int code)
{
    cli_result r = cli_run("$P plan %s --json", args);
    json_t *j = r.code == code ? json_loads(r.out, 0, NULL) : NULL;
    if (!j) pl_test_fail(__FILE__, __LINE__, "plan %s: exit %d, %s", args, r.code, r.err);
    return j;
}

static double number(const json_t *j, const char *name)
{
    return json_number_value(json_object_get(j, name));
}

static double sum_of(const json_t *parts)
{
    const char *key;
    json_t *value;
    double sum = 0;
    json_object_foreach((json_t *)(uintptr_t)parts, key, value) sum += json_number_value(value);
    return sum;
}

/* Arena of a row of the table of means; -1 when there is none of that name. */
static double arena_of(const json_t *j, const char *name)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(j, "means"), i, row)
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
            return number(row, "arena_bytes");
    return -1;
}

TEST(cli_plan_parts_add_up)
{
    if (!cli_bin()) return;
    json_t *kept = planned(NET, 0), *less = planned(NET "--memory 62MB", 0);
    CHECK(number(kept, "keep_all_bytes") == number(kept, "arena_bytes"));
    CHECK(sum_of(json_object_get(kept, "components")) ==
          sum_of(json_object_get(kept, "keep_all_components")));
    CHECK(number(less, "arena_bytes") < number(kept, "arena_bytes"));
    CHECK(sum_of(json_object_get(less, "components")) ==
          number(less, "live_bound_bytes") + number(less, "state_bytes"));
    /* the plan that is not run is shown beside, as it is when it runs */
    CHECK(sum_of(json_object_get(less, "keep_all_components")) ==
          sum_of(json_object_get(kept, "components")));
    CHECK(number(less, "keep_all_step_ms") == number(kept, "predicted_step_ms"));
    CHECK(number(less, "keep_all_step_ms") < number(less, "predicted_step_ms"));
    json_decref(kept);
    json_decref(less);
    cli_result r = cli_run("$P plan " NET "--memory 62MB");
    CHECK(strstr(r.out, "all kept") && strstr(r.out, "computing again"));
    CHECK(strstr(r.out, "The fullest steps around it"));
}

/* Every row's figure is what planning with and without that means gives. */
TEST(cli_plan_means_are_plans)
{
    if (!cli_bin()) return;
    json_t *one = planned(NET "--explain --memory 62MB", 0), *kept = planned(NET, 0);
    CHECK(arena_of(one, "recompute") == number(one, "arena_bytes"));
    CHECK(arena_of(one, "offsets") == number(kept, "arena_bytes"));
    CHECK(arena_of(one, "order") == number(kept, "live_bound_bytes"));
    CHECK(arena_of(one, "views") == number(kept, "no_reuse_bytes"));
    static const char *const down[] = {"micro_batches", "fusion", "views", "sharing", "in_place", "order"};
    for (int i = 0; i < 5; i++)
        CHECK_MSG(arena_of(one, down[i]) >= arena_of(one, down[i + 1]), "%s", down[i + 1]);
    CHECK(arena_of(one, "whole_batch") < 0); /* it is not split */
    json_t *split = planned("cloud/tiny batch=8 accumulate=4 accumulate_coupled=true --explain", 0);
    CHECK(arena_of(split, "whole_batch") > 2 * arena_of(split, "micro_batches"));
    json_decref(one);
    json_decref(kept);
    json_decref(split);
}

/* An edit, pasted behind the command line that did not fit, fits with the bytes and time it said. */
static void check_edit(const char *args, const json_t *edit)
{
    char line[512];
    snprintf(line, sizeof line, "%s %s", args, json_string_value(json_object_get(edit, "edit")));
    json_t *j = planned(line, 0);
    CHECK_MSG(json_is_true(json_object_get(j, "fits")), "%s", line);
    double told = number(edit, "total_bytes"), is = number(j, "total_bytes");
    /* another process: some pages more or fewer */
    CHECK_MSG(told - is < 6e6 && is - told < 6e6, "%s: %.0f told, %.0f planned", line, told, is);
    CHECK_NEAR(number(edit, "predicted_step_ms"), number(j, "predicted_step_ms"),
               0.06 * number(j, "predicted_step_ms"));
    if (json_is_true(json_object_get(edit, "exact")))
        CHECK(number(j, "effective_batch") == 8);
    json_decref(j);
}

TEST(cli_plan_offers_edits_that_fit)
{
    if (!cli_bin()) return;
    static const char *const nets[] = {NET "--memory 48MB", NET "checkpointing=off --memory 62MB"};
    for (int i = 0; i < 2; i++) {
        json_t *j = planned(nets[i], 3), *edits = json_object_get(j, "edits"), *edit;
        size_t k;
        CHECK_MSG(json_array_size(edits) == 3, "%s: %zu edits", nets[i], json_array_size(edits));
        CHECK(json_is_true(json_object_get(json_array_get(edits, 0), "exact")));
        json_array_foreach(edits, k, edit) check_edit(nets[i], edit);
        json_decref(j);
    }
    cli_result r = cli_run("$P plan " NET "--memory 48MB");
    CHECK(r.code == 3 && strstr(r.out, "--memory ") && strstr(r.out, "batch="));
    CHECK(strstr(r.err, "smallest budget"));
}

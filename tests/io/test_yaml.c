/* test_yaml.c - the YAML tree: positions of nodes, limits and messages. */
#include "base/str.h"
#include "io/yaml.h"
#include "tests/lib/test.h"

#include <string.h>

static pl_arena arena;

static pl_status parse(const char *text, const pl_yaml **out)
{
    pl_arena_release(&arena);
    *out = NULL;
    return pl_yaml_parse(text, strlen(text), "c.yaml", &arena, out);
}

#define REFUSED(text, says)                                                                        \
 do {                                                                                              \
  const pl_yaml *r_;                                                                               \
  CHECK_INT(parse((text), &r_), PL_ERR_CONFIG);                                                    \
  CHECK_MSG(strstr(pl_error_text(), (says)), "message was: %s", pl_error_text());                  \
  pl_arena_release(&arena);                                                                        \
 } while (0)

TEST(yaml_nodes_know_their_line_and_column)
{
    const pl_yaml *r;

    CHECK_OK(parse(
        "# head\ntrain:\n  steps: 5 # five\n  lr: '0.1'\nlist: [1, \"b\", {c: d}]\nnone:\n", &r));
    const pl_yaml *steps = pl_yaml_get(pl_yaml_get(r, "train"), "steps");
    CHECK(steps && steps->plain && strcmp(steps->text, "5") == 0);
    CHECK_INT(steps->line, 3);
    CHECK_INT(steps->column, 10);
    CHECK_INT(steps->key->column, 3);
    CHECK(!pl_yaml_get(pl_yaml_get(r, "train"), "lr")->plain);

    const pl_yaml *list = pl_yaml_get(r, "list");
    CHECK(list->kind == PL_YAML_SEQUENCE && list->n_items == 3 &&
          list->first->next->next->kind == PL_YAML_MAPPING);
    CHECK(pl_yaml_get(r, "none")->text[0] == 0);
    CHECK(pl_yaml_get(r, "absent") == NULL);
    pl_arena_release(&arena);
}

TEST(yaml_reader_accepts_json)
{
    const pl_yaml *r;
    CHECK_OK(parse("{\"a\": {\"b\": [1, 2.5, null, true]}, \"url\": \"http://x\"}", &r));
    CHECK_INT(pl_yaml_get(pl_yaml_get(r, "a"), "b")->n_items, 4);
    pl_arena_release(&arena);
}

TEST(yaml_empty_documents_are_null)
{
    const pl_yaml *r;
    CHECK_OK(parse("", &r));
    CHECK(r == NULL);
    CHECK_OK(parse("# nothing\n", &r));
    pl_arena_release(&arena);
}

TEST(yaml_aliases_repeat_their_anchor)
{
    const pl_yaml *r;
    CHECK_OK(parse("a: &x {p: 1, q: [2, 3]}\nb: *x\n", &r));
    const pl_yaml *b = pl_yaml_get(r, "b");

    CHECK(b->kind == PL_YAML_MAPPING && pl_yaml_get(b, "q")->n_items == 2);
    CHECK_INT(b->line, 2);
    CHECK(strcmp(b->key->text, "b") == 0);

    REFUSED("a: *x\n", "c.yaml:1:");
    REFUSED("a: &x [*x]\n", "no complete anchor");
}

TEST(yaml_documents_that_explode_are_refused)
{
    /* Each line doubles the size of the value of the line before. */
    pl_str s = PL_STR_INIT;

    pl_str_add(&s, "a0: &a0 [x,x,x,x,x,x,x,x]\n");
    for (int i = 1; i < 12; i++)
        pl_str_addf(&s, "a%d: &a%d [*a%d,*a%d,*a%d,*a%d]\n", i, i, i - 1, i - 1, i - 1, i - 1);
    REFUSED(s.text, "too many values");
    pl_str_release(&s);
    pl_str_add(&s, "a: &a 1\nb: [");
    for (int i = 0; i < 101; i++) pl_str_add(&s, "*a ,");
    pl_str_add(&s, "]\n");
    REFUSED(s.text, "too many aliases");
    pl_str_release(&s);
    for (int i = 0; i < 40; i++) pl_str_add(&s, "[");
    for (int i = 0; i < 40; i++) pl_str_add(&s, "]");
    REFUSED(s.text, "deep");
    pl_str_release(&s);
    pl_str_add(&s, "a: |\n  b\n");
    for (int i = 0; i < 201; i++) pl_str_add(&s, " \n");
    REFUSED(s.text, "blank lines");
    pl_str_release(&s);
    pl_str_addf(&s, "a:%502s\n", "b");
    REFUSED(s.text, "c.yaml:1:503: more than");
    pl_str_release(&s);
    for (int i = 0; i < 70000; i++) pl_str_add(&s, "# 34567890abcde\n");
    REFUSED(s.text, "1048576");
    pl_str_release(&s);
}

TEST(yaml_refusals_name_the_place)
{
    REFUSED("a: 1\nb: 2\na: 3\n", "c.yaml:3:1: this key is set twice: a");
    REFUSED("a: 1\n---\nb: 2\n", "second document");
    REFUSED("a: !!str 1\n", "tags");
    REFUSED("a: !x {}\n", "tags");
    REFUSED("a: &x {b: 1}\nc:\n  <<: *x\n", "c.yaml:3:3: merge keys");
    REFUSED("[a]: 1\n", "a key must be text");
    REFUSED("a: [1, 2\nb: 3\n", "c.yaml:");
    REFUSED("a: \"\\0\"\n", "zero byte");
    REFUSED("a: \xff\n", "UTF-8");
    REFUSED("a:\n  'x\x16'\n", "c.yaml:2:5: a control character (0x16)");
    REFUSED("a: b: c\n", "c.yaml:1:");
    REFUSED("\ta: 1\n", "c.yaml:");
}

TEST(yaml_comments_in_json_get_a_hint)
{
    REFUSED("{\n  // rate\n  \"lr\": 1\n}\n", "c.yaml:2:3: JSON has no comments");
    REFUSED("{\n  \"lr\": 1, /* rate */\n}\n", "c.yaml:2:12: JSON has no comments");
    const pl_yaml *r;
    CHECK_OK(parse("{ # see // there\n \"lr\": \"// not one\", url: http://x }\n", &r));
    CHECK_OK(parse("path: //server/x\n", &r)); /* not JSON: plain text */

    CHECK_INT(pl_yaml_parse("// x\n{}", 7, "c.json", &arena, &r), PL_ERR_CONFIG);
    CHECK(strstr(pl_error_text(), "rename the file to .yaml"));
    pl_arena_release(&arena);
}

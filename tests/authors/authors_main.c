/* authors_main.c - pl_authors: compares a folder of the authors' numbers; tools/check-authors runs
 * it. Exit codes: 0 all agree, 1 something differs, 2 the folder cannot be read. */
#include "tests/authors/authors.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int lines, bad;
    if (argc < 2 || argc > 3 || argv[1][0] == '-') {
        fprintf(stderr, "usage: pl_authors DIR [SYSTEM]\n");
        return 2;
    }
    if (authors_check(argv[1], argc > 2 ? argv[2] : NULL, false, &lines, &bad) != PL_OK) {
        fprintf(stderr, "pl_authors: %s\n", pl_error_text());
        return 2;
    }
    printf("%d lines, %d differ\n", lines, bad);
    return bad > 0;
}

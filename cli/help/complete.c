/* complete.c - completions for bash, zsh and fish.
 *
 * A script has the commands, options, presets and devices of the program that printed the script.
 * The keys of a configuration depend on its recipe, so the script asks `plimsoll help --keys CONFIG
 * WORD` for them while the user types.
 */
#include "help.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- words ------------------------------------------------------------------------------- */

static void put_commands(FILE *out)
{
    for (const cli_command *c = cli_commands; c->name; c++)
        fprintf(out, "%s%s", c == cli_commands ? "" : " ", c->name);
}

static void put_presets(FILE *out)
{
    for (int i = 0; i < pl_recipe_count(); i++) {
        const pl_recipe *r = pl_recipe_at(i);
        for (const pl_preset *p = r->presets; p && p->name; p++)
            fprintf(out, "%s%s/%s", i || p != r->presets ? " " : "", r->name, p->name);
    }
}

static void put_devices(FILE *out)
{
    int n;
    pl_device_info *d = cli_devices(true, &n);
    fputs("cpu cuda", out);
    for (int i = 0; i < n; i++) fprintf(out, " %s", d[i].name);
    free(d);
}

static bool takes_config(const cli_command *c)
{
    return strstr(c->help->usage, "CONFIG") != NULL;
}

static bool takes_device(const cli_option *o)
{
    return o->arg && strcmp(o->arg, "DEVICE") == 0;
}

static bool takes_path(const cli_option *o)
{
    return o->arg && (strncmp(o->arg, "FILE", 4) == 0 || strcmp(o->arg, "DIR") == 0 ||
                      strcmp(o->arg, "RUN") == 0);
}

/* Writes text with a backslash before each of `special`. */
static void put_escaped(FILE *out, const char *text, const char *special)
{
    for (; *text; text++) {
        if (strchr(special, *text)) fputc('\\', out);
        fputc(*text, out);
    }
}

/* ---- bash -------------------------------------------------------------------------------- */
static void bash_options(FILE *out)
{
    fputs("    case $command in\n", out);
    for (const cli_command *c = cli_commands; c->name; c++) {
        fprintf(out, "    %s) options='", c->name);
        for (const cli_option *o = c->help->options; o && o->name; o++)
            fprintf(out, "%s ", o->name);
        fprintf(out, "--help'%s ;;\n", takes_config(c) ? " config=1" : "");
    }
    fputs("    esac\n    case $command$previous in\n", out);
    for (const cli_command *c = cli_commands; c->name; c++)
        for (const cli_option *o = c->help->options; o && o->name; o++)
            if (o->arg)
                fprintf(out, "    %s%s) %s ;;\n", c->name, o->name,
                        takes_device(o) ? "choose \"$devices\"; return"
                        : takes_path(o) ? "compopt -o default; return"
                                        : "return");
    fputs("    esac\n", out);
}

static void bash(FILE *out)
{
    fputs("# Completions of plimsoll for bash; made by: plimsoll help --completion bash\n"
          "_plimsoll() {\n"
          "    local line=${COMP_LINE:0:COMP_POINT} word previous command options config=0 w keys\n"
          "    local -a words\n"
          "    read -ra words <<<\"$line\"\n"
          "    [[ $line == *[[:space:]] ]] && words+=(\"\")\n"
          "    local n=${#words[@]}\n"
          "    word=${words[n-1]} previous=${words[n-2]} command=${words[1]}\n"
          "    choose() { mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$word\"); }\n"
          "    local commands='",
          out);
    put_commands(out);
    fputs("'\n    local presets='", out);
    put_presets(out);
    fputs("'\n    local devices='", out);
    put_devices(out);
    fputs("'\n    if ((n == 2)); then choose \"$commands help\"; return; fi\n", out);
    bash_options(out);
    fputs(
        "    if [[ $command == help ]]; then choose \"$commands --man --completion\"; return; fi\n"
        "    if [[ $word == -* ]]; then choose \"$options\"; return; fi\n"
        "    if ((config)); then\n"
        "        for w in \"${words[@]:2:n-3}\"; do\n"
        "            [[ $w == -* || $w == *=* ]] && continue\n"
        "            keys=$(\"${words[0]}\" help --keys \"$w\" \"$word\" 2>/dev/null) || continue\n"
        "            choose \"$keys\"\n"
        "            compopt -o nospace\n"
        "            # bash replaces the word after the last word break, which \"=\" may be\n"
        "            [[ $word == *=* && $COMP_WORDBREAKS == *=* ]] &&\n"
        "                COMPREPLY=(\"${COMPREPLY[@]#\"${word%\"${word##*=}\"}\"}\")\n"
        "            return\n"
        "        done\n"
        "        choose \"$presets\"\n"
        "    fi\n"
        "    compopt -o default\n"
        "}\n"
        "complete -F _plimsoll plimsoll\n",
        out);
}

/* ---- zsh --------------------------------------------------------------------------------- */
static void zsh_command(const cli_command *c, FILE *out)
{
    fprintf(out, "    %s)\n        _arguments -S \\\n", c->name);
    for (const cli_option *o = c->help->options; o && o->name; o++) {
        fprintf(out, "            $'%s[", o->name);
        put_escaped(out, o->help, "[]:\\'");
        fputc(']', out);
        if (o->arg) {
            fputc(':', out);
            put_escaped(out, o->arg, "[]:\\'");
            fputs(takes_device(o) ? ":_plimsoll_devices" : takes_path(o) ? ":_files" : ": ", out);
        }
        fputs("' \\\n", out);
    }
    fprintf(
        out,
        "            '--help[print the help of the command]' \\\n            '*:argument:%s'\n        ;;\n",
        takes_config(c) ? "_plimsoll_config" : "_files");
}

static void zsh(FILE *out)
{
    fputs("#compdef plimsoll\n"
          "# Completions of plimsoll for zsh; made by: plimsoll help --completion zsh\n"
          "_plimsoll_devices() { compadd -- ",
          out);
    put_devices(out);
    fputs("; }\n"
          "_plimsoll_config() {\n"
          "    local w keys\n"
          "    for w in ${words[2,CURRENT-1]}; do\n"
          "        [[ $w == -* || $w == *=* ]] && continue\n"
          "        keys=$(plimsoll help --keys \"$w\" \"$PREFIX\" 2>/dev/null) || continue\n"
          "        compadd -S '' -- ${(f)keys}\n"
          "        return\n"
          "    done\n"
          "    compadd -- ",
          out);
    put_presets(out);
    fputs("\n    _files\n}\n_plimsoll() {\n    local -a commands\n    commands=(\n", out);
    for (const cli_command *c = cli_commands; c->name; c++) {
        fprintf(out, "        $'%s:", c->name);
        put_escaped(out, c->about, ":\\'");
        fputs("'\n", out);
    }
    fputs("    )\n"
          "    local state\n"
          "    _arguments -C '1:command:->command' '*::argument:->argument'\n"
          "    [[ $state == command ]] && _describe command commands\n"
          "    [[ $state == argument ]] || return\n"
          "    case $words[1] in\n",
          out);
    for (const cli_command *c = cli_commands; c->name; c++) zsh_command(c, out);
    fputs("    esac\n}\n_plimsoll \"$@\"\n", out);
}

/* ---- fish -------------------------------------------------------------------------------- */
static void fish(FILE *out)
{
    fputs("# Completions of plimsoll for fish; made by: plimsoll help --completion fish\n"
          "function __plimsoll_keys\n"
          "    for w in (commandline -opc)[3..-1]\n"
          "        string match -qr -- '^-|=' $w; and continue\n"
          "        plimsoll help --keys $w (commandline -ct) 2>/dev/null; and return\n"
          "    end\n"
          "end\n"
          "complete -c plimsoll -n __fish_use_subcommand -f\n",
          out);
    for (const cli_command *c = cli_commands; c->name; c++) {
        fprintf(out, "complete -c plimsoll -n __fish_use_subcommand -a %s -d '", c->name);
        put_escaped(out, c->about, "\\'");
        fputs("'\n", out);
        for (const cli_option *o = c->help->options; o && o->name; o++) {
            fprintf(out, "complete -c plimsoll -n '__fish_seen_subcommand_from %s' -l %s", c->name,
                    o->name + 2);
            if (o->arg) fputs(takes_path(o) ? " -r -F" : " -x", out);
            if (takes_device(o)) {
                fputs(" -a '", out);
                put_devices(out);
                fputs("'", out);
            }
            fputs(" -d '", out);
            put_escaped(out, o->help, "\\'");
            fputs("'\n", out);
        }
        if (!takes_config(c)) continue;
        fprintf(out, "complete -c plimsoll -n '__fish_seen_subcommand_from %s' -a '", c->name);
        put_presets(out);
        fprintf(
            out,
            "'\ncomplete -c plimsoll -n '__fish_seen_subcommand_from %s' -a '(__plimsoll_keys)'\n",
            c->name);
    }
}

bool complete_shell(const char *shell, FILE *out)
{
    static const struct {
        const char *name;
        void (*print)(FILE *out);
    } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].print(out);
            return true;
        }
    return false;
}

/* ---- keys of a configuration ------------------------------------------------------------- */
static void print_key(void *ctx, const char *key, const char *old_value, const char *new_value)
{
    (void)old_value;
    (void)new_value;
    fprintf(ctx, "%s=\n", key);
}

/* Prints key=VALUE for each value that is known: choices, true and false, devices. */
static void print_values(const pl_config *c, const char *key, FILE *out)
{
    const pl_config_entry *row = pl_config_row(c, key);
    int n = 0;
    pl_device_info *d = strcmp(key, "device") == 0 ? cli_devices(true, &n) : NULL;
    if (row && row->type == PL_CONFIG_BOOL) fprintf(out, "%s=true\n%s=false\n", key, key);
    for (const char *p = row ? row->choices : NULL; p && *p;) {
        size_t len = strcspn(p, "|");
        fprintf(out, "%s=%.*s\n", key, (int)len, p);
        p += len + (p[len] == '|');
    }
    if (n) fprintf(out, "%s=cpu\n%s=cuda\n", key, key);
    for (int i = 0; i < n; i++) fprintf(out, "%s=%s\n", key, d[i].name);
    free(d);
}

int complete_keys(const char *config, const char *word, FILE *out)
{
    struct stat s;
    char path[4200], key[128];
    bool folder = stat(config, &s) == 0 && S_ISDIR(s.st_mode);
    snprintf(path, sizeof path, "%s%s", config, folder ? "/config.yaml" : "");
    pl_run *run = NULL;
    pl_config *none = NULL;
    pl_status rc = pl_run_open(path, NULL, 0, &run);
    if (rc == PL_OK && strchr(word, '=')) {
        snprintf(key, sizeof key, "%.*s", (int)strcspn(word, "="), word);
        print_values(pl_run_config(run), key, out);
    } else if (rc == PL_OK) {
        rc = pl_config_new(NULL, 0, &none); /* every key differs from no keys */
        if (rc == PL_OK) rc = pl_config_diff(pl_run_config(run), none, print_key, out);
    }
    pl_config_free(none);
    pl_run_free(run);
    return rc == PL_OK ? 0 : cli_fail(rc);
}

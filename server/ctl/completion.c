/* headpond completion: scripts for bash, zsh and fish, made from the tables of verbs and options.
 *
 * Invariants:
 *  1. Only what this version can do is offered.
 *  2. Helps of the tables hold no quote, backslash, dollar, backtick or colon (a unit test looks),
 * so that they may stand in single quotes.
 *
 * Life: one text on stdout. Failure: an unknown shell is a usage error. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <stdio.h>

static struct span first_word(const struct verb *v)
{
    struct span rest = span_of(v->name);
    return span_cut(&rest, ' ');
}

/* Verbs of two words share the first: it is offered once. */
static bool is_offered(unsigned i)
{
    if (!ctl_verbs[i].run)
        return false;
    for (unsigned j = 0; j < i; j++)
        if (ctl_verbs[j].run && span_eq(first_word(&ctl_verbs[j]), first_word(&ctl_verbs[i])))
            return false;
    return true;
}

static void print_first_words(const char *between)
{
    bool any = false;

    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        struct span word = first_word(&ctl_verbs[i]);
        if (is_offered(i))
            printf("%s%.*s", any ? between : "", (int)word.len, word.at);
        any = any || is_offered(i);
    }
}

static void print_options(const struct option_row *o, const char *between)
{
    for (; o && o->name; o++)
        printf("%s--%s", between, o->name);
}

/* Second words of "config show" and the like, and the choices in "bash|zsh|fish". */
static void print_words(struct span first)
{
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        const struct verb *v = &ctl_verbs[i];
        struct span rest = span_of(v->name), args = span_of(v->args), word = span_cut(&rest, ' ');
        if (!v->run || !span_eq(word, first))
            continue;
        if (rest.len)
            printf(" %.*s", (int)rest.len, rest.at);
        while (strchr(v->args, '|') && args.len) {
            word = span_cut(&args, '|');
            printf(" %.*s", (int)word.len, word.at);
        }
    }
}

static void offer_bash(void)
{
    fputs("_headpond() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} verb= word skip= words\n"
          "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
          "        if [[ -n $skip ]]; then skip=; continue; fi\n"
          "        case $word in\n"
          "            --server|--timeout|--token-file|--unread-for) skip=1 ;;\n"
          "            --until|--depth|--by) skip=1 ;;\n"
          "            -*) ;;\n"
          "            *) verb=$word; break ;;\n"
          "        esac\n"
          "    done\n"
          "    case $verb in\n"
          "        '') words='", stdout);
    print_first_words(" ");
    print_options(ctl_options, " ");
    fputs("' ;;\n", stdout);
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        struct span word = first_word(&ctl_verbs[i]);
        if (!is_offered(i))
            continue;
        printf("        %.*s) words='", (int)word.len, word.at);
        print_words(word);
        print_options(ctl_verbs[i].option, " ");
        print_options(ctl_options, " ");
        fputs("' ;;\n", stdout);
    }
    fputs("    esac\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "}\n", stdout);
}

static void offer_zsh(void)
{
    fputs("#compdef headpond\n"
          "# zsh: put this file as _headpond into a directory of $fpath, or source it after "
          "compinit\n"
          "_headpond() {\n"
          "    local -a verbs=(\n", stdout);
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        struct span word = first_word(&ctl_verbs[i]);
        if (is_offered(i))
            printf("        '%.*s:%s'\n", (int)word.len, word.at, ctl_verbs[i].help);
    }
    fputs("    )\n"
          "    if (( CURRENT == 2 )); then _describe command verbs; return; fi\n"
          "    case $words[2] in\n", stdout);
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        struct span word = first_word(&ctl_verbs[i]);
        if (!is_offered(i))
            continue;
        printf("        %.*s) compadd --", (int)word.len, word.at);
        print_words(word);
        print_options(ctl_verbs[i].option, " ");
        print_options(ctl_options, " ");
        fputs(" ;;\n", stdout);
    }
    fputs("    esac\n"
          "}\n"
          "compdef _headpond headpond\n", stdout);
}

static void offer_fish_options(const struct option_row *o, struct span verb)
{
    for (; o && o->name; o++) {
        fputs("complete -c headpond", stdout);
        if (verb.len)
            printf(" -n '__fish_seen_subcommand_from %.*s'", (int)verb.len, verb.at);
        printf(" -l %s%s -d '%s'\n", o->name, o->kind == OPTION_VALUE ? " -x" : "", o->help);
    }
}

static void offer_fish(void)
{
    fputs("complete -c headpond -f\n", stdout);
    offer_fish_options(ctl_options, span_of(""));
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        struct span word = first_word(&ctl_verbs[i]);
        if (!is_offered(i))
            continue;
        printf("complete -c headpond -n __fish_use_subcommand -a %.*s -d '%s'\n", (int)word.len,
               word.at, ctl_verbs[i].help);
        printf("complete -c headpond -n '__fish_seen_subcommand_from %.*s' -a '", (int)word.len,
               word.at);
        print_words(word);
        fputs("'\n", stdout);
        offer_fish_options(ctl_verbs[i].option, word);
    }
}

int completion_run(struct ctl *c)
{
    if (strcmp(c->word[0], "bash") == 0) {
        offer_bash();
        puts("complete -F _headpond headpond");
    } else if (strcmp(c->word[0], "zsh") == 0) {
        offer_zsh();
    } else if (strcmp(c->word[0], "fish") == 0) {
        offer_fish();
    } else {
        fprintf(stderr, "headpond: completion knows bash, zsh and fish, not \"%.20s\"\n",
                c->word[0]);
        return CTL_USAGE;
    }
    return CTL_DONE;
}

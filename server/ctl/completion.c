/* headpond completion: scripts for bash, zsh and fish, made from the tables of verbs and options.
 *
 * Invariants:
 *  1. Only what this version can do is offered, and of a verb of two words its own options only.
 *  2. Helps of the tables hold no quote, backslash, dollar, backtick or colon (a unit test looks),
 * so that they may stand in single quotes.
 *  3. A script looks at words that are complete: options may stand before the verb, and the value
 *     of an option is no verb.
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

static struct span second_word(const struct verb *v)
{
    struct span rest = span_of(v->name);
    span_cut(&rest, ' ');
    return rest;
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

static bool has_option(const struct option_row *o, const char *name)
{
    for (; o && o->name; o++)
        if (strcmp(o->name, name) == 0)
            return true;
    return false;
}

/* The verb's own, then the general ones; of a name that both have, once. */
static void print_options(const struct option_row *own)
{
    for (const struct option_row *o = own; o && o->name; o++)
        printf(" --%s", o->name);
    for (const struct option_row *o = ctl_options; o->name; o++)
        if (!has_option(own, o->name))
            printf(" --%s", o->name);
}

/* "a|b|c" as words; anything else is no list. */
static void print_choices(const char *text)
{
    struct span rest = span_of(text);

    while (text && strchr(text, '|') && rest.len) {
        struct span word = span_cut(&rest, '|');
        printf(" %.*s", (int)word.len, word.at);
    }
}

static void print_second_words(struct span first)
{
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        struct span word = second_word(&ctl_verbs[i]);
        if (ctl_verbs[i].run && word.len && span_eq(first_word(&ctl_verbs[i]), first))
            printf(" %.*s", (int)word.len, word.at);
    }
}

static bool is_first_of_name(const struct option_row *o, unsigned verb)
{
    bool known = verb > 0 && has_option(ctl_options, o->name);

    for (unsigned i = 0; i + 1 < verb; i++)
        known = known || (ctl_verbs[i].run && has_option(ctl_verbs[i].option, o->name));
    return !known;
}

/* Each option once that is followed by a value, whoever has it. */
static void each_value_option(void (*print)(const struct option_row *o))
{
    for (unsigned i = 0; i <= ctl_verb_count(); i++) {
        const struct option_row *o = i ? ctl_verbs[i - 1].option : ctl_options;
        if (i && !ctl_verbs[i - 1].run)
            continue;
        for (; o && o->name; o++)
            if (o->kind == OPTION_VALUE && is_first_of_name(o, i))
                print(o);
    }
}

static void print_pattern(const struct option_row *o)
{
    printf("--%s|", o->name);
}

/* How a shell writes lists: words of the verb, then options. */
struct style {
    const char *open, *between, *close;
};

/* The cases of a shell's `case $said in`: what may stand behind these words. */
static void print_cases(const struct style *style)
{
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        const struct verb *v = &ctl_verbs[i];
        struct span first = first_word(v), second = second_word(v);
        if (!v->run)
            continue;
        if (second.len && is_offered(i)) {
            printf("        '%.*s') %s", (int)first.len, first.at, style->open);
            print_second_words(first);
            fputs(style->between, stdout);
            print_options(NULL);
            printf("%s ;;\n", style->close);
        }
        printf("        '%s'|'%s '*) %s", v->name, v->name, style->open);
        print_choices(v->args);
        fputs(style->between, stdout);
        print_options(v->option);
        printf("%s ;;\n", style->close);
    }
}

/* ---- bash ---- */

static void bash_value(const struct option_row *o)
{
    const char *value = o->value;

    if (strcmp(value, "FILE") == 0)
        printf("        --%s) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "
               "\"$cur\")); return ;;\n", o->name);
    else if (strcmp(value, "DIR") == 0)
        printf("        --%s) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "
               "\"$cur\")); return ;;\n", o->name);
    else if (strchr(value, '|')) {
        printf("        --%s) COMPREPLY=($(compgen -W '", o->name);
        print_choices(value);
        fputs("' -- \"$cur\")); return ;;\n", stdout);
    }
}

/* The line is cut at blanks, as bash would cut s3://x and http://x:1 at colons. */
static void offer_bash(void)
{
    static const struct style style = {"words='", "' options='", "'"};

    fputs("_headpond() {\n"
          "    local cur= prev= said= word= skip= words= options= line=${COMP_LINE:0:COMP_POINT}\n"
          "    local -a given\n"
          "    read -ra given <<<\"$line\"\n"
          "    if [[ $line != *[[:space:]] ]]; then\n"
          "        cur=${given[-1]}\n"
          "        unset 'given[-1]'\n"
          "    fi\n"
          "    (( ${#given[@]} )) || return\n"
          "    prev=${given[-1]}\n"
          "    for word in \"${given[@]:1}\"; do\n"
          "        if [[ -n $skip ]]; then skip=; continue; fi\n"
          "        case $word in\n"
          "            ", stdout);
    each_value_option(print_pattern);
    fputs("--) skip=1 ;;\n"
          "            -*) ;;\n"
          "            *) said+=\"${said:+ }$word\" ;;\n"
          "        esac\n"
          "    done\n"
          "    case $prev in\n", stdout);
    each_value_option(bash_value);
    fputs("    esac\n"
          "    if [[ -n $skip ]]; then return; fi\n"
          "    case $said in\n"
          "        '') words='", stdout);
    print_first_words(" ");
    fputs(style.between, stdout);
    print_options(NULL);
    fputs("' ;;\n", stdout);
    print_cases(&style);
    fputs("    esac\n"
          "    if [[ $cur == -* ]]; then words=$options; fi\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "}\n"
          "complete -F _headpond headpond\n", stdout);
}

/* ---- zsh ---- */

static void zsh_value(const struct option_row *o)
{
    const char *value = o->value;

    printf("        --%s) ", o->name);
    if (strcmp(value, "FILE") == 0) {
        fputs("_files", stdout);
    } else if (strcmp(value, "DIR") == 0) {
        fputs("_files -/", stdout);
    } else if (strchr(value, '|')) {
        fputs("compadd --", stdout);
        print_choices(value);
    } else {
        printf("_message '%s'", value);
    }
    fputs("; return ;;\n", stdout);
}

static void offer_zsh(void)
{
    static const struct style style = {"found=(", ") options=(", ")"};

    fputs("#compdef headpond\n"
          "# zsh: put this file as _headpond into a directory of $fpath, or source it after "
          "compinit\n"
          "_headpond() {\n"
          "    local said= word= skip=\n"
          "    local -a found=() options=() verbs=(\n", stdout);
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        struct span word = first_word(&ctl_verbs[i]);
        if (is_offered(i))
            printf("        '%.*s:%s'\n", (int)word.len, word.at, ctl_verbs[i].help);
    }
    fputs("    )\n"
          "    for word in \"${(@)words[2,CURRENT-1]}\"; do\n"
          "        if [[ -n $skip ]]; then skip=; continue; fi\n"
          "        case $word in\n"
          "            ", stdout);
    each_value_option(print_pattern);
    fputs("--) skip=$word ;;\n"
          "            -*) ;;\n"
          "            *) said+=\"${said:+ }$word\" ;;\n"
          "        esac\n"
          "    done\n"
          "    case $skip in\n", stdout);
    each_value_option(zsh_value);
    fputs("    esac\n"
          "    case $said in\n"
          "        '') options=(", stdout);
    print_options(NULL);
    fputs(") ;;\n", stdout);
    print_cases(&style);
    fputs("    esac\n"
          "    if [[ $words[CURRENT] == -* ]]; then\n"
          "        compadd -- $options\n"
          "    elif [[ -z $said ]]; then\n"
          "        _describe command verbs\n"
          "    else\n"
          "        compadd -- $found\n"
          "    fi\n"
          "}\n"
          "compdef _headpond headpond\n", stdout);
}

/* ---- fish ---- */

/* -n '...': behind the words of a verb. */
static void print_condition(const struct verb *v)
{
    if (v)
        printf(" -n '__headpond_is %s'", v->name);
}

static void offer_fish_options(const struct option_row *o, const struct verb *v)
{
    for (; o && o->name; o++) {
        fputs("complete -c headpond", stdout);
        print_condition(v);
        printf(" -l %s", o->name);
        if (o->letter)
            printf(" -s %s", o->letter);
        if (o->kind == OPTION_VALUE && strcmp(o->value, "FILE") == 0) {
            fputs(" -r -F", stdout);
        } else if (o->kind == OPTION_VALUE && strcmp(o->value, "DIR") == 0) {
            fputs(" -x -a '(__fish_complete_directories)'", stdout);
        } else if (o->kind == OPTION_VALUE) {
            fputs(" -x", stdout);
            if (strchr(o->value, '|')) {
                fputs(" -a '", stdout);
                print_choices(o->value);
                fputs("'", stdout);
            }
        }
        printf(" -d '%s'\n", o->help);
    }
}

static void offer_fish_verb(unsigned i)
{
    const struct verb *v = &ctl_verbs[i];
    struct span first = first_word(v), second = second_word(v);

    if (is_offered(i))
        printf("complete -c headpond -n '__headpond_count 0' -a %.*s -d '%s'\n", (int)first.len,
               first.at, second.len ? "" : v->help);
    if (second.len)
        printf("complete -c headpond -n '__headpond_is %.*s; and __headpond_count 1' -a %.*s -d "
               "'%s'\n", (int)first.len, first.at, (int)second.len, second.at, v->help);
    if (strchr(v->args, '|')) {
        fputs("complete -c headpond", stdout);
        print_condition(v);
        fputs(" -a '", stdout);
        print_choices(v->args);
        fputs("'\n", stdout);
    }
    offer_fish_options(v->option, v);
}

static void print_case(const struct option_row *o)
{
    printf(" --%s", o->name);
}

static void offer_fish(void)
{
    fputs("function __headpond_said\n"
          "    set -l skip\n"
          "    for word in (commandline -opc)[2..-1]\n"
          "        if test -n \"$skip\"\n"
          "            set skip\n"
          "            continue\n"
          "        end\n"
          "        switch $word\n"
          "            case", stdout);
    each_value_option(print_case);
    fputs("\n"
          "                set skip 1\n"
          "            case '-*'\n"
          "            case '*'\n"
          "                echo $word\n"
          "        end\n"
          "    end\n"
          "end\n"
          "function __headpond_is\n"
          "    set -l said (__headpond_said)\n"
          "    string match -q -- \"$argv *\" \"$said \"\n"
          "end\n"
          "function __headpond_count\n"
          "    test (count (__headpond_said)) = $argv\n"
          "end\n"
          "complete -c headpond -f\n", stdout);
    offer_fish_options(ctl_options, NULL);
    for (unsigned i = 0; i < ctl_verb_count(); i++)
        if (ctl_verbs[i].run)
            offer_fish_verb(i);
}

int completion_run(struct ctl *c)
{
    if (strcmp(c->word[0], "bash") == 0) {
        offer_bash();
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

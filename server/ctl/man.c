/* headpond man: the manual pages headpond(1), headpondd(8) and headpond.toml(5), made from the
 * tables of verbs, options, flags and events.
 *
 * Invariants:
 *  1. Text of the tables passes escape(): it cannot begin a request of roff, nor an escape.
 *  2. A page is the same wherever it is made: it holds no date and no path of this machine.
 *
 * Life: one text on stdout. Failure: an unknown page is a usage error. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "conf.h"
#include "server/ctl/ctl.h"

/* ---- roff ---- */

static void escape(struct span text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.at[i];
        if (i == 0 && (c == '.' || c == '\''))
            fputs("\\&", stdout);
        if (c == '\\')
            fputs("\\e", stdout);
        else if (c == '-')
            fputs("\\-", stdout);
        else if (c == '\'')
            fputs("\\(aq", stdout);
        else
            putchar(c);
    }
}

/* Running text, a line of its own. */
static void say(const char *text)
{
    escape(span_of(text));
    putchar('\n');
}

static void head(const char *name, const char *section, const char *does)
{
    printf(".\\\" Made from the tables of the program; do not edit.\n"
           ".TH %s %s \"\" \"headpond " HEADPOND_VERSION "\" \"headpond\"\n.SH NAME\n", name,
           section);
    escape(span_of(name));
    fputs(" \\- ", stdout);
    say(does);
}

static void title(const char *words)
{
    printf(".SH %s\n", words);
}

static void paragraph(const char *text)
{
    puts(".PP");
    say(text);
}

/* A term in bold with a text behind it. */
static void term(const char *bold, const char *italic, const char *text)
{
    fputs(".TP\n\\fB", stdout);
    escape(span_of(bold));
    fputs("\\fR", stdout);
    if (italic && italic[0]) {
        fputs(" \\fI", stdout);
        escape(span_of(italic));
        fputs("\\fR", stdout);
    }
    putchar('\n');
    say(text);
}

static void example(const char *const *line, unsigned count)
{
    puts(".nf");
    for (unsigned i = 0; i < count; i++)
        say(line[i]);
    puts(".fi");
}

static void see_also(const char *const *page, unsigned count)
{
    title("SEE ALSO");
    for (unsigned i = 0; i < count; i++)
        printf(".BR %s%s\n", page[i], i + 1 < count ? "," : "");
}

/* ---- headpond(1) ---- */

static void list_options(const struct option_row *o)
{
    for (; o && o->name; o++) {
        fputs(".TP\n", stdout);
        if (o->letter)
            printf("\\fB\\-%s\\fR, ", o->letter);
        fputs("\\fB\\-\\-", stdout);
        escape(span_of(o->name));
        fputs("\\fR", stdout);
        if (o->value) {
            fputs(o->kind == OPTION_MAYBE ? "[=\\fI" : " \\fI", stdout);
            escape(span_of(o->value));
            fputs(o->kind == OPTION_MAYBE ? "\\fR]" : "\\fR", stdout);
        }
        putchar('\n');
        say(o->help);
    }
}

static void list_verbs(void)
{
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        const struct verb *v = &ctl_verbs[i];
        if (!v->run)
            continue;
        term(v->name, v->args, v->help);
        if (!v->option)
            continue;
        puts(".RS");
        list_options(v->option);
        puts(".RE");
    }
}

static void print_headpond(void)
{
    static const char *const lines[] = {
        "headpond status --watch",
        "headpond prewarm s3://train-data/imagenet/ --until 18h",
        "headpond evict s3://train-data/old/ --unread-for 7d --dry-run",
        "eval \"$(headpond env)\"",
    };
    static const char *const pages[] = {"headpondd (8)", "headpond.toml (5)"};

    head("headpond", "1", "command line of the S3 read-through cache headpondd");
    title("SYNOPSIS");
    puts(".B headpond\n[\\fIOPTION\\fR]... \\fICOMMAND\\fR [\\fIARGUMENT\\fR]...");
    title("DESCRIPTION");
    say("headpond asks the control plane of a running headpondd, over its UNIX socket or HTTP, and "
        "tells it what to do.");
    paragraph("Results go to stdout, talk and progress to stderr. Over the socket whoever may open "
              "it may change things; over TCP changes need the token of admin.token_file. Sizes "
              "are written as 8MiB or 1GB, times as 250ms, 60s, 2m, 18h or 7d.");
    title("COMMANDS");
    list_verbs();
    title("OPTIONS");
    say("They may stand before and behind the command.");
    list_options(ctl_options);
    title("ENVIRONMENT");
    term("HEADPOND_SERVER", NULL, "the server, where --server does not name one; else "
                                  "unix:/run/headpond/admin.sock is tried, then "
                                  "http://127.0.0.1:9001");
    term("HEADPOND_TOKEN_FILE", NULL, "as --token-file");
    term("NO_COLOR", NULL, "no colours, if it is not empty");
    title("EXIT STATUS");
    for (const struct code_row *r = ctl_codes; r->help; r++) {
        char code[8];
        snprintf(code, sizeof code, "%d", r->code);
        term(code, NULL, r->help);
    }
    title("EXAMPLES");
    example(lines, ARRAY_COUNT(lines));
    see_also(pages, ARRAY_COUNT(pages));
}

/* ---- headpondd(8) ---- */

static void list_flags(void)
{
    static const struct {
        const char *name, *value, *help;
    } flags[] = {
#define X(id, name, value, help) {name, value, help},
#include "table/flags.h"
#undef X
    };

    for (unsigned i = 0; i < ARRAY_COUNT(flags); i++) {
        char name[32];
        snprintf(name, sizeof name, "--%s", flags[i].name);
        term(name, flags[i].value, flags[i].help);
    }
}

static void list_events(void)
{
    static const struct {
        const char *level, *words, *help;
    } events[] = {
#define LEVEL(level) #level
#define X(name, level, words, help) {LEVEL(level), words, help},
#include "table/events.h"
#undef X
#undef LEVEL
    };
    static const char *const levels[][2] = {
        {"LOG_ERROR", "error"}, {"LOG_WARN", "warn"}, {"LOG_INFO", "info"}, {"LOG_DEBUG", "debug"}};

    for (unsigned i = 0; i < ARRAY_COUNT(events); i++)
        for (unsigned k = 0; k < ARRAY_COUNT(levels); k++)
            if (strcmp(events[i].level, levels[k][0]) == 0)
                term(events[i].words, levels[k][1], events[i].help);
}

static void tell_signals(void)
{
    title("SIGNALS");
    term("SIGTERM, SIGINT", NULL, "drain, not ready at once, running requests finish within "
                                  "server.drain_timeout; a second one cuts them");
    term("SIGHUP", NULL, "read configuration, keys, credential files and certificate anew; a "
                         "mistake changes nothing and is logged with its place");
    title("EXIT STATUS");
    term("0", NULL, "ended, or checked, well");
    term("1", NULL, "could not start; one line says why and what to do");
    term("2", NULL, "usage or configuration");
}

static void print_headpondd(void)
{
    static const char *const pages[] = {"headpond (1)", "headpond.toml (5)"};

    head("headpondd", "8", "S3 read-through cache on local NVMe");
    title("SYNOPSIS");
    puts(".B headpondd\n[\\fBserve\\fR] [\\fIOPTION\\fR]...\n.br\n.B headpondd check\n"
         "[\\fB\\-\\-config\\fR \\fIFILE\\fR] [\\fB\\-\\-json\\fR]\n.br\n.B headpondd check "
         "\\-\\-list");
    title("DESCRIPTION");
    say("headpondd speaks S3 to its clients, keeps the objects that they read on local disks, and "
        "asks the remote store only for what it does not hold or may no longer trust. headpond(1) "
        "tells how it is and gives it orders.");
    paragraph("check looks at the configuration and at the files that it names, and tells each "
              "mistake with file, line and column.");
    title("OPTIONS");
    list_flags();
    title("ENVIRONMENT");
    term("HEADPOND_CONFIG", NULL, "the configuration, where --config does not name one; else "
                                  "/etc/headpond/headpond.toml is read if it exists");
    term("HEADPOND_SECTION_KEY", NULL, "an option, as HEADPOND_UPSTREAM_ENDPOINT; the order of "
                                       "precedence is flag, environment, file, default");
    term("AWS_*", NULL, "credentials and region for the store, as every AWS tool finds them; "
                        "AWS_ENDPOINT_URL is ignored");
    term("NOTIFY_SOCKET", NULL, "systemd is told READY=1 and STOPPING=1");
    tell_signals();
    title("LOG MESSAGES");
    say("Lines go to stderr, one event each, with its level and words as below, and key=value.");
    list_events();
    see_also(pages, ARRAY_COUNT(pages));
}

/* ---- headpond.toml(5) ---- */

static void list_section(const char *section)
{
    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        const struct conf_option *o = &conf_options[i];
        if (strcmp(o->section, section) != 0)
            continue;
        fputs(".TP\n\\fB", stdout);
        escape(span_of(o->key));
        fputs("\\fR = \\fI", stdout);
        escape(span_of(o->standard[0] ? o->standard : "\"\""));
        printf("\\fR%s%s\n", o->flags & RESTART ? " (R)" : "",
               o->flags & LATER ? " (not in this version)" : "");
        say(o->help);
        if (o->kind == CONF_COUNT)
            printf("From %u to %u.\n", o->least, o->most);
        if (o->kind == CONF_ENUM && strchr(o->values, '|')) {
            fputs("One of ", stdout);
            escape(span_of(o->values));
            puts(".");
        }
    }
}

static void print_toml(void)
{
    static const char *const pages[] = {"headpondd (8)", "headpond (1)"};
    const char *section = "";
    char memory[8 * KIB];
    struct text t;

    head("headpond.toml", "5", "configuration of headpondd");
    title("SYNOPSIS");
    say("/etc/headpond/headpond.toml");
    title("DESCRIPTION");
    say("A file in TOML; every key is optional except upstream.endpoint and cache.dirs. Check it "
        "with headpondd check, apply it with headpond config reload or systemctl reload headpond.");
    paragraph("Sizes are written B, KiB, MiB, GiB, TiB (also KB, MB, GB, TB), times ms, s, m, h, "
              "d, both in quotes. An option marked (R) needs a restart, all others are applied by "
              "a reload. Below, what stands behind = is the default.");
    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        if (strcmp(section, conf_options[i].section) == 0)
            continue;
        section = conf_options[i].section;
        printf(".SH [%s]\n", section);
        list_section(section);
    }
    title("SECTIONS THAT MAY BE REPEATED");
    puts(".nf");
    text_init(&t, memory, sizeof memory);
    conf_reference_repeated(&t);
    for (struct span rest = text_span(&t); rest.len;) {
        escape(span_cut(&rest, '\n'));
        putchar('\n');
    }
    puts(".fi");
    see_also(pages, ARRAY_COUNT(pages));
}

int man_run(struct ctl *c)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } pages[] = {
        {"headpond", print_headpond},
        {"headpondd", print_headpondd},
        {"headpond.toml", print_toml},
    };

    for (unsigned i = 0; i < ARRAY_COUNT(pages); i++) {
        if (strcmp(pages[i].name, c->word[0]) != 0)
            continue;
        pages[i].print();
        return CTL_DONE;
    }
    fprintf(stderr, "headpond: there are pages headpond, headpondd and headpond.toml, none "
                    "\"%.40s\"\n", c->word[0]);
    return CTL_USAGE;
}

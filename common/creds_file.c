/* Files that operators write: read whole into memory that is wiped, and the INI of ~/.aws taken
 * apart.
 *
 * Invariants:
 *  1. A file is read to its end or not at all, whatever size it was said to have, up to 1 MiB.
 *  2. INI: a property is told once, with its line; what is indented belongs to the line above and
 *     is left out; nothing is allocated.
 * Life: creds_file() gives memory to the caller; an ini is the caller's and borrows the bytes.
 * Failure: a sentence with the path; a mistake of INI has line, column and words. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = MIB };

/* ---- files ---- */
static enum err errno_to_err(int number)
{
    if (number == ENOENT || number == ENOTDIR)
        return ERR_NOT_FOUND;
    return number == EACCES || number == EPERM ? ERR_DENIED : ERR_SYSTEM;
}

static enum err check_file(int fd, const char *path, bool private, struct text *why)
{
    struct stat s;
    if (fstat(fd, &s) != 0) {
        text_addf(why, "%s: %s", path, strerrordesc_np(errno));
        return ERR_SYSTEM;
    }
    if (!S_ISREG(s.st_mode)) {
        text_addf(why, "%s is not a regular file", path);
        return ERR_DENIED;
    }
    if (private && (s.st_mode & 0177) != 0) {
        text_addf(why, "%s has mode %04o and must not be wider than 0600: chmod 600 %s", path,
                  (unsigned)s.st_mode & 07777, path);
        return ERR_DENIED;
    }
    return OK;
}

/* Reads to the end whatever size stat told, as the file may be growing. */
static enum err read_all(int fd, const char *path, char *to, size_t *len, struct text *why)
{
    size_t sum = 0;
    while (sum <= FILE_BYTES_MAX) {
        ssize_t n = read(fd, to + sum, FILE_BYTES_MAX + 1 - sum);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            text_addf(why, "%s: %s", path, strerrordesc_np(errno));
            return ERR_SYSTEM;
        }
        if (n == 0) {
            to[sum] = '\0';
            *len = sum;
            return OK;
        }
        sum += (size_t)n;
    }
    text_addf(why, "%s is larger than 1 MiB", path);
    return ERR_TOO_LARGE;
}

enum err creds_file(const char *path, bool private, char **out, size_t *len, struct text *why)
{
    char *whole = NULL;
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int number = errno;
        text_addf(why, "%s: %s", path, strerrordesc_np(number));
        return errno_to_err(number);
    }
    char *room = mem_take(FILE_BYTES_MAX + 1);
    enum err e = room ? check_file(fd, path, private, why) : ERR_MEMORY;
    if (e == OK)
        e = read_all(fd, path, room, &n, why);
    if (e == OK) {
        whole = mem_take(n + 1);
        e = whole ? OK : ERR_MEMORY;
    }
    if (e == OK) {
        memcpy(whole, room, n);
        *out = whole;
        *len = n;
    }
    if (room)
        mem_give_secret(room, FILE_BYTES_MAX + 1);
    close(fd);
    return e;
}

/* ---- INI ---- */
void ini_begin(struct ini *i, struct span bytes)
{
    static const char bom[] = "\xEF\xBB\xBF";
    *i = (struct ini){.rest = bytes};
    if (span_starts(bytes, span_of(bom)))
        i->rest = span_from(bytes, 3);
}

/* Blanks then '#' or ';' end a value; without a blank they belong to it. */
static struct span cut_comment(struct span text)
{
    for (size_t at = 1; at < text.len; at++)
        if ((text.at[at] == '#' || text.at[at] == ';') &&
            (text.at[at - 1] == ' ' || text.at[at - 1] == '\t'))
            return span_make(text.at, at);
    return text;
}

static enum err ini_fail(struct ini *i, size_t at, const char *why)
{
    i->column = (unsigned)(i->indent + at) + 1;
    i->why = why;
    return ERR_SYNTAX;
}

static enum err ini_section(struct ini *i, struct span line)
{
    size_t end = span_find(line, ']');
    if (end == line.len)
        return ini_fail(i, line.len, "']' is missing");
    struct span behind = span_trim(span_from(line, end + 1));
    if (behind.len > 0 && behind.at[0] != '#' && behind.at[0] != ';')
        return ini_fail(i, (size_t)(behind.at - line.at), "nothing but a comment may follow ']'");
    i->section = span_trim(span_make(line.at + 1, end - 1));
    return OK;
}

enum err ini_next(struct ini *i, struct span *name, struct span *value)
{
    while (i->rest.len > 0) {
        struct span line = span_cut(&i->rest, '\n');
        i->line++;
        if (line.len > 0 && line.at[line.len - 1] == '\r')
            line.len--;
        struct span text = span_trim(line);
        size_t indent = (size_t)(text.at - line.at);
        if (text.len == 0 || strchr("#;", text.at[0]) || (i->property && indent > i->indent))
            continue;
        i->indent = indent;
        i->property = text.at[0] != '[';
        line = span_from(line, indent);
        if (!i->property) {
            TRY(ini_section(i, line));
            continue;
        }
        size_t equals = span_find(line, '=');
        if (equals == line.len)
            return ini_fail(i, 0, "neither \"name = value\" nor \"[section]\"");
        if (!i->section.at)
            return ini_fail(i, 0, "a property before the first [section]");
        *name = span_trim(span_make(line.at, equals));
        *value = span_trim(cut_comment(span_from(line, equals)));
        *value = span_trim(span_from(*value, 1));
        if (name->len == 0)
            return ini_fail(i, 0, "a value without a name");
        return OK;
    }
    return ERR_NOT_FOUND;
}

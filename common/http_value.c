/* The values of HTTP fields that S3 gives a meaning: Range, Content-Range, dates, conditions.
 *
 * Invariants:
 *  1. A range is applied as S3 does it, not as RFC 9110 14.2 would also permit: exactly one range,
 *     what is malformed is ignored, what is well-formed and outside the object is unsatisfiable.
 *  2. No arithmetic can wrap: *to is always clipped below the size before it is used.
 *  3. Conditions are judged in the order of S3 (RFC 9110 13.2.2 with If-Match deciding over
 *     If-Unmodified-Since, If-None-Match over If-Modified-Since), one ETag or "*" each.
 *  4. Dates are proleptic Gregorian, UTC, and no libc function that knows a locale or a time zone
 *     is called.
 *
 * Life: pure functions; a thread remembers how it wrote the last days.
 *
 * What can fail: the input; a date or Content-Range that is not understood is ERR_SYNTAX, a Range
 * is ignored. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"

/* ---- ranges ---- */
/* Takes leading digits off *text. Returns how many; *over when the number needs more than 64 bit.
 * */
static size_t take_digits(struct span *text, uint64_t *out, bool *over)
{
    size_t n = 0;
    while (n < text->len && text->at[n] >= '0' && text->at[n] <= '9')
        n++;
    *over = false;
    *out = 0;
    if (n && span_u64(span_make(text->at, n), out) != OK)
        *over = true;
    *text = span_from(*text, n);
    return n;
}

static bool take_char(struct span *text, char c)
{
    if (text->len == 0 || text->at[0] != c)
        return false;
    *text = span_from(*text, 1);
    return true;
}

enum http_range_form http_range_read(struct span field, uint64_t *from, uint64_t *to)
{
    struct span unit = span_of("bytes=");
    uint64_t first, last;
    bool first_over, last_over;
    if (!span_starts(field, unit))
        return HTTP_FORM_NONE;
    struct span rest = span_from(field, unit.len);
    size_t first_digits = take_digits(&rest, &first, &first_over);
    if (!take_char(&rest, '-'))
        return HTTP_FORM_NONE;
    size_t last_digits = take_digits(&rest, &last, &last_over);
    if (rest.len || (first_digits == 0 && last_digits == 0))
        return HTTP_FORM_NONE;
    if (first_over || last_over)     /* S3 answers 416 to either */
        return HTTP_FORM_BAD;
    if (first_digits == 0) {
        if (last == 0)
            return HTTP_FORM_BAD;
        *from = last;
        return HTTP_FORM_SUFFIX;
    }
    if (last_digits == 0) {
        *from = first;
        return HTTP_FORM_FROM;
    }
    if (first > last)
        return HTTP_FORM_NONE;
    *from = first;
    *to = last;
    return HTTP_FORM_FROM_TO;
}

enum http_range http_range_apply(struct span field, uint64_t size, uint64_t *from, uint64_t *to)
{
    uint64_t first = 0, last = UINT64_MAX;
    switch (http_range_read(field, &first, &last)) {
    case HTTP_FORM_NONE:
        return HTTP_RANGE_NONE;
    case HTTP_FORM_BAD:
        return HTTP_RANGE_UNSATISFIABLE;
    case HTTP_FORM_SUFFIX:
        if (size == 0)               /* the last bytes of nothing: S3 sends the empty object */
            return HTTP_RANGE_NONE;
        first = first < size ? size - first : 0;
        break;
    case HTTP_FORM_FROM:
    case HTTP_FORM_FROM_TO:
        if (first >= size)
            return HTTP_RANGE_UNSATISFIABLE;
        break;
    }
    *from = first;
    *to = min_u64(last, size - 1);
    return HTTP_RANGE_OK;
}

enum err http_content_range(struct span value, uint64_t *from, uint64_t *to, uint64_t *size)
{
    struct span unit = span_of("bytes ");
    uint64_t first = 1, last = 0;
    if (!span_starts(value, unit))
        return ERR_SYNTAX;
    struct span whole = span_from(value, unit.len);
    struct span part = span_cut(&whole, '/');
    uint64_t all;
    TRY(span_u64(whole, &all));
    if (all > INT64_MAX)             /* as a Content-Length: sizes are rounded up everywhere */
        return ERR_TOO_LARGE;
    if (!span_is(part, "*")) {
        struct span end = part;
        struct span begin = span_cut(&end, '-');
        TRY(span_u64(begin, &first));
        TRY(span_u64(end, &last));
        if (first > last || last >= all)
            return ERR_SYNTAX;
    }
    *from = first;
    *to = last;
    *size = all;
    return OK;
}

/* ---- dates ---- */
enum { DAY_S = 86400, YEAR_MAX = 9999 };
#define LAST_S 253402300799u         /* 9999-12-31T23:59:59Z */

static const char day_names[] = "ThuFriSatSunMonTueWed";  /* 1970-01-01 was a Thursday */
static const char month_names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

struct civil {
    unsigned year, month, day;       /* month and day count from 1 */
    unsigned hour, minute, second;
    unsigned weekday;                /* 0 = Thursday */
};

/* Days are counted in eras of 400 years that begin on 1 March, so that the leap day is the last of
 * its year. */
static struct civil civil_of(uint64_t unix_s)
{
    uint64_t s = min_u64(unix_s, LAST_S);
    unsigned days = (unsigned)(s / DAY_S), rest = (unsigned)(s % DAY_S);
    unsigned z = days + 719468;      /* 0000-03-01 to 1970-01-01 */
    unsigned era = z / 146097, in_era = z % 146097;
    unsigned year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    unsigned in_year = in_era - (365 * year + year / 4 - year / 100);
    unsigned month = (5 * in_year + 2) / 153;              /* 0 = March */
    return (struct civil){
        .year = era * 400 + year + (month >= 10),
        .month = month < 10 ? month + 3 : month - 9,
        .day = in_year - (153 * month + 2) / 5 + 1,
        .hour = rest / 3600,
        .minute = rest / 60 % 60,
        .second = rest % 60,
        .weekday = days % 7,
    };
}

static bool leap(unsigned year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static bool civil_valid(const struct civil *c)
{
    static const uint8_t month_days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (c->month < 1 || c->month > 12 || c->day < 1)
        return false;
    unsigned days = month_days[c->month - 1] + (c->month == 2 && leap(c->year));
    return c->day <= days && c->hour < 24 && c->minute < 60 && c->second <= 60;
}

static uint64_t civil_seconds(const struct civil *c)
{
    if (c->year < 1970)
        return 0;
    unsigned year = c->year - (c->month <= 2);
    unsigned month = c->month > 2 ? c->month - 3 : c->month + 9;
    unsigned in_year = (153 * month + 2) / 5 + c->day - 1;
    unsigned in_era = year % 400;
    uint64_t days = (uint64_t)(year / 400) * 146097 + in_era * 365 + in_era / 4 - in_era / 100;
    days += in_year;
    days -= 719468;
    return days * DAY_S + c->hour * 3600u + c->minute * 60u + c->second;
}

static char *put_number(char *p, unsigned n, unsigned digits)
{
    for (unsigned i = digits; i-- > 0; n /= 10)
        p[i] = (char)('0' + n % 10);
    return p + digits;
}

static char *put_text(char *p, const char *text, size_t len)
{
    memcpy(p, text, len);
    return p + len;
}

static char *put_clock(char *p, const struct civil *c)
{
    p = put_number(p, c->hour, 2);
    *p++ = ':';
    p = put_number(p, c->minute, 2);
    *p++ = ':';
    return put_number(p, c->second, 2);
}

static void put_day(char *p, unsigned day)
{
    struct civil c = civil_of((uint64_t)day * DAY_S);
    p = put_text(p, day_names + 3 * c.weekday, 3);
    p = put_text(p, ", ", 2);
    p = put_number(p, c.day, 2);
    *p++ = ' ';
    p = put_text(p, month_names + 3 * (c.month - 1), 3);
    *p++ = ' ';
    p = put_number(p, c.year, 4);
    *p++ = ' ';
}

void http_date_write(uint64_t unix_s, char out[HTTP_DATE_BYTES + 1])
{
    /* Answers name few days, each many times: a data set is uploaded in some of them. */
    enum { DAYS = 16, DAY_BYTES = 17 };
    static _Thread_local struct {
        unsigned day;                /* + 1 */
        char text[DAY_BYTES];
    } known[DAYS];
    uint64_t s = min_u64(unix_s, LAST_S);
    unsigned day = (unsigned)(s / DAY_S), rest = (unsigned)(s % DAY_S), at = day % DAYS;
    struct civil c = {.hour = rest / 3600, .minute = rest / 60 % 60, .second = rest % 60};
    if (known[at].day != day + 1) {
        put_day(known[at].text, day);
        known[at].day = day + 1;
    }
    char *p = put_text(out, known[at].text, DAY_BYTES);
    p = put_clock(p, &c);
    put_text(p, " GMT", 5);
}

void iso_date_write(uint64_t unix_ms, char out[25])
{
    struct civil c = civil_of(unix_ms / 1000);
    char *p = put_number(out, c.year, 4);
    *p++ = '-';
    p = put_number(p, c.month, 2);
    *p++ = '-';
    p = put_number(p, c.day, 2);
    *p++ = 'T';
    p = put_clock(p, &c);
    *p++ = '.';
    p = put_number(p, (unsigned)(unix_ms % 1000), 3);
    put_text(p, "Z", 2);
}

/* Patterns: D weekday (three letters), L weekday (all letters), M month, d day, e day padded with a
 * blank, Y year, y year of two digits, h m s clock; all else stands for itself. RFC 9110 5.6.7. */
static const char *const date_forms[] = {
    "D, d M Y h:m:s GMT",            /* IMF-fixdate */
    "L, d-M-y h:m:s GMT",            /* RFC 850 */
    "D M e h:m:s Y",                 /* asctime */
};

static bool take_number(struct span *text, unsigned digits, unsigned *out)
{
    uint64_t n;
    if (text->len < digits || span_u64(span_make(text->at, digits), &n) != OK)
        return false;
    *text = span_from(*text, digits);
    *out = (unsigned)n;
    return true;
}

/* One of the three-letter names; *out is its place in the list. */
static bool take_name(struct span *text, const char *names, unsigned *out)
{
    for (unsigned i = 0; text->len >= 3 && names[3 * i]; i++) {
        if (memcmp(text->at, names + 3 * i, 3) == 0) {
            *text = span_from(*text, 3);
            *out = i;
            return true;
        }
    }
    return false;
}

static bool take_long_weekday(struct span *text)
{
    static const char *const names[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                        "Friday", "Saturday", "Sunday"};
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++) {
        struct span name = span_of(names[i]);
        if (span_starts(*text, name)) {
            *text = span_from(*text, name.len);
            return true;
        }
    }
    return false;
}

static bool take_month(struct span *text, struct civil *c)
{
    if (!take_name(text, month_names, &c->month))
        return false;
    c->month++;
    return true;
}

/* RFC 9110 wants the century nearest to now; without a clock, 1970 is the border. */
static bool take_short_year(struct span *text, struct civil *c)
{
    if (!take_number(text, 2, &c->year))
        return false;
    c->year += c->year < 70 ? 2000 : 1900;
    return true;
}

static bool take_piece(struct span *text, char piece, struct civil *c)
{
    switch (piece) {
    case 'D':
        return take_name(text, day_names, &c->weekday);
    case 'L':
        return take_long_weekday(text);
    case 'M':
        return take_month(text, c);
    case 'd':
        return take_number(text, 2, &c->day);
    case 'e':
        return take_number(text, take_char(text, ' ') ? 1 : 2, &c->day);
    case 'Y':
        return take_number(text, 4, &c->year);
    case 'y':
        return take_short_year(text, c);
    case 'h':
        return take_number(text, 2, &c->hour);
    case 'm':
        return take_number(text, 2, &c->minute);
    case 's':
        return take_number(text, 2, &c->second);
    default:
        return take_char(text, piece);
    }
}

static bool date_matches(struct span text, const char *form, struct civil *c)
{
    bool gmt = false;                /* "GMT" is text, not pieces */
    for (; *form; form++) {
        gmt = gmt || *form == 'G';
        if (gmt ? !take_char(&text, *form) : !take_piece(&text, *form, c))
            return false;
    }
    return text.len == 0;
}

enum err http_date_read(struct span value, uint64_t *unix_s)
{
    for (unsigned i = 0; i < ARRAY_COUNT(date_forms); i++) {
        struct civil c = {0};
        if (date_matches(value, date_forms[i], &c) && civil_valid(&c)) {
            *unix_s = civil_seconds(&c);
            return OK;
        }
    }
    return ERR_SYNTAX;
}

/* ---- conditions ---- */
struct span http_unquote(struct span etag)
{
    if (etag.len >= 2 && etag.at[0] == '"' && etag.at[etag.len - 1] == '"')
        return span_make(etag.at + 1, etag.len - 2);
    return etag;
}

static bool etag_matches(struct span wanted, struct span etag)
{
    return span_is(wanted, "*") || span_eq(http_unquote(wanted), http_unquote(etag));
}

static bool read_since(struct span field, uint64_t last_modified_s, uint64_t now_s,
                       uint64_t *since_s)
{
    return field.len > 0 && last_modified_s > 0 && http_date_read(field, since_s) == OK &&
           *since_s <= now_s;
}

uint16_t http_judge(const struct http_conditions *c, struct span etag, uint64_t last_modified_s,
                    uint64_t now_s, const char **failed)
{
    uint64_t since_s = 0;
    bool none_match = c->if_none_match.len == 0 || !etag_matches(c->if_none_match, etag);
    bool unmodified = !read_since(c->if_unmodified_since, last_modified_s, now_s, &since_s) ||
                      last_modified_s <= since_s;
    bool modified = !read_since(c->if_modified_since, last_modified_s, now_s, &since_s) ||
                    last_modified_s > since_s;
    if (c->if_match.len > 0) {
        if (!etag_matches(c->if_match, etag)) {
            *failed = "If-Match";
            return 412;
        }
    } else if (!unmodified) {
        *failed = "If-Unmodified-Since";
        return 412;
    }
    if (c->if_none_match.len > 0)
        return none_match ? 200 : 304;
    return modified ? 200 : 304;
}

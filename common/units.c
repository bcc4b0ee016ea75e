/* Numbers as people read them, for the command line and the status page.
 *
 * Invariants:
 *  1. A number that rounding lifts to the next unit (1023.99 MiB) is shown in the smaller one;
 *     nothing is shown as 0 of a unit while a smaller unit exists.
 *
 * Life: pure functions over a text. Failure: a text that is too small is cut and says `over`. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "units.h"

struct scale {
    const char *const *unit;
    unsigned count;
    double step;
};

static const char *const storage_units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
static const char *const rate_units[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s"};
static const struct scale storage = {storage_units, ARRAY_COUNT(storage_units), 1024};
static const struct scale rates = {rate_units, ARRAY_COUNT(rate_units), 1000};

static double sane(double n)
{
    return n > 0 && n < 1e24 ? n : 0;    /* false for NaN as well */
}

/* The unit that suits n; *divisor is what n has to be divided by. */
static const char *unit_of(const struct scale *s, double n, double *divisor)
{
    unsigned at = 0;

    for (*divisor = 1; at + 1 < s->count && n / *divisor >= s->step; at++)
        *divisor *= s->step;
    return s->unit[at];
}

static void add_rounded(struct text *t, double n, bool whole)
{
    text_addf(t, "%.*f", whole ? 0 : n < 10 ? 2 : 1, n);
}

void units_count(struct text *t, uint64_t n)
{
    char digits[24];
    int len = 0;

    do {
        digits[len++] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    while (len-- > 0) {
        text_addc(t, digits[len]);
        if (len > 0 && len % 3 == 0)
            text_addc(t, ' ');
    }
}

void units_bytes(struct text *t, uint64_t bytes)
{
    double divisor;
    const char *unit = unit_of(&storage, (double)bytes, &divisor);

    add_rounded(t, (double)bytes / divisor, divisor <= 1);
    text_addf(t, " %s", unit);
}

void units_bytes_of(struct text *t, uint64_t part, uint64_t whole)
{
    double divisor;
    const char *unit = unit_of(&storage, (double)max_u64(part, whole), &divisor);
    int decimals = divisor > 1 ? 2 : 0;

    text_addf(t, "%.*f of %.*f %s", decimals, (double)part / divisor, decimals,
              (double)whole / divisor, unit);
}

void units_bytes_part(struct text *t, uint64_t part, uint64_t whole)
{
    double divisor;
    const char *unit = unit_of(&storage, (double)max_u64(part, whole), &divisor);

    add_rounded(t, (double)part / divisor, divisor <= 1);
    text_adds(t, " / ");
    add_rounded(t, (double)whole / divisor, divisor <= 1);
    text_addf(t, " %s", unit);
}

void units_rate(struct text *t, double bytes_per_s, double like)
{
    double divisor;
    const char *unit = unit_of(&rates, sane(like), &divisor);
    double n = sane(bytes_per_s) / divisor;

    if (n >= 100 || divisor <= 1)
        text_addf(t, "%.0f %s", n, unit);
    else
        text_addf(t, "%.*f %s", n < 10 ? 2 : 1, n, unit);
}

void units_duration(struct text *t, uint64_t seconds)
{
    unsigned long long days = seconds / 86400, hours = seconds / 3600 % 24;
    unsigned long long minutes = seconds / 60 % 60, rest = seconds % 60;

    if (days)
        text_addf(t, "%llud %lluh", days, hours);
    else if (hours)
        text_addf(t, "%lluh %02llum", hours, minutes);
    else if (minutes)
        text_addf(t, "%llum %02llus", minutes, rest);
    else
        text_addf(t, "%llus", rest);
}

void units_ms(struct text *t, double ms)
{
    ms = sane(ms);
    if (ms >= 1000)
        text_addf(t, "%.2f s", ms / 1000);
    else
        text_addf(t, "%.*f ms", ms < 100 ? 1 : 0, ms);
}

void units_percent(struct text *t, double ratio, unsigned decimals)
{
    text_addf(t, "%.*f %%", (int)min_u64(decimals, 6), sane(ratio) * 100);
}

# Rows of bench/run.sh -> the table on standard output, and TSV.
#   first file: cell unit, in the order of the table
#   second file: cell server value cpu p50_us p99_us first_us origin_ratio client_cpu others

function sorted(key, column,    n, i, j, x)      # s[1..n] = the values of one column, ascending; returns n
{
    n = count[key]
    for (i = 1; i <= n; i++) {
        x = row[key, i, column] + 0
        for (j = i - 1; j >= 1 && s[j] > x; j--)
            s[j + 1] = s[j]
        s[j + 1] = x
    }
    return n
}
function median(key, column,    n)
{
    n = sorted(key, column)
    return n % 2 ? s[(n + 1) / 2] : (s[n / 2] + s[n / 2 + 1]) / 2
}
function number(x)                               # three digits that mean something
{
    return x >= 100 ? sprintf("%.0f", x) : x >= 10 ? sprintf("%.1f", x) : x >= 1 ? sprintf("%.2f", x) : sprintf("%.3f", x)
}
function lower(unit)                             # whether less is better
{
    return unit == "s" || unit == "ms" || unit == "us" || unit == "KiB"
}
function better(unit, a, b)                      # how many times a is better than b
{
    if (!a || !b)
        return 1                                 # nothing was measured: no verdict
    return lower(unit) ? b / a : a / b
}

NR == FNR { unit[$1] = $2; cell[++cells] = $1; next }
{
    key = $1 SUBSEP $2
    if (!count[key]++)
        server[$1, ++servers[$1]] = $2
    for (i = 3; i <= NF; i++)
        row[key, count[key], i] = $i
}
END {
    print "date\tcommit\tmachine\tcase\tserver\tunit\tmedian\tmin\tmax\tspread\tcpu\tcpu_unit\trounds\tratio\tbest_peer" > tsv
    printf "%-13s %-11s %-26s %-16s %-6s %-11s %-17s %-9s %s\n", "cell", "server", "median [min-max]", "CPU", "ratio",
        "to", "p50/p99 ms", "TTFB ms", "origin bytes / asked, remarks"
    for (c = 1; c <= cells; c++) {
        name = cell[c]
        u = unit[name]
        cpu_unit = u == "k/s" || u == "x" || u == "us" ? "us/request" : u == "GB/s" ? "s/GB" : "s"
        best = 0; best_name = "-"
        for (i = 1; i <= servers[name]; i++)
            if (server[name, i] !~ /^(headpond|static|direct)/) {
                m = median(name SUBSEP server[name, i], 3)
                if (!best || better(u, m, best) > 1) {
                    best = m
                    best_name = server[name, i]
                }
            }
        for (i = 1; i <= servers[name]; i++) {
            who = server[name, i]
            key = name SUBSEP who
            n = sorted(key, 3)
            low = s[1]; high = s[n]
            m = median(key, 3)
            cpu = median(key, 4)
            ratio = best ? sprintf("%.2f", better(u, m, best)) : "-"
            from = median(key, 8)
            remark = u == "s" || u == "ms" ? sprintf("%.3g", from) : from > 0 ? sprintf("%.3g (not silent)", from) : ""
            if (median(key, 9) >= 0.9 && !lower(u))
                remark = remark " client at its limit"
            if (who != "direct" && median(key, 10) > 0.1)
                remark = remark sprintf(" others took %.0f%% of core 0", 100 * median(key, 10))
            printf "%-13s %-11s %-26s %-16s %-6s %-11s %-17s %-9s %s\n", name, who,
                sprintf("%s [%s-%s] %s", number(m), number(low), number(high), u),
                who == "direct" ? "-" : number(cpu) " " cpu_unit, ratio, best_name,
                number(median(key, 5) / 1e3) "/" number(median(key, 6) / 1e3), number(median(key, 7) / 1e3), remark
            printf "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f%%\t%s\t%s\t%d\t%s\t%s\n", date, commit, machine, name, who, u,
                number(m), number(low), number(high), m ? 100 * (high - low) / m : 0, number(cpu), cpu_unit, n, ratio, best_name > tsv
        }
    }
    print "rows: " tsv
}

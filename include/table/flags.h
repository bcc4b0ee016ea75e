/* Options of headpondd's command line: X(id, name, value, help); value NULL: none follows. Each has
 * a case in main.c; the manual page prints them. */
/* SPDX-License-Identifier: Apache-2.0 */
X(FLAG_CONFIG, "config", "FILE", "the configuration to read")
X(FLAG_UPSTREAM, "upstream", "URL",
        "upstream.endpoint, as https://host, http://host:9000 or file:///dir")
X(FLAG_CACHE, "cache", "DIR", "cache.dirs; repeat it for each disk")
X(FLAG_SIZE, "size", "SIZE", "cache.size, of each disk, as 90% or 2TiB")
X(FLAG_LISTEN, "listen", "ADDRESS", "server.listen, as 0.0.0.0:9000; repeatable")
X(FLAG_SET, "set", "SECTION.KEY=VALUE", "any option of the configuration; repeatable")
X(FLAG_ROOT, "allow-root", NULL, "run although the user is root")
X(FLAG_PRINT, "print-config", NULL, "print the effective configuration as TOML and end")
X(FLAG_JSON, "json", NULL, "with check, one JSON object per line")
X(FLAG_LIST, "list", NULL, "with check, every option with its type and default")
X(FLAG_VERSION, "version", NULL, "print the version and end")
X(FLAG_HELP, "help", NULL, "print the usage and end")

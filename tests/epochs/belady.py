"""What a cache would hit on a trace of chunks of one size: by Belady's MIN, and by LRU.

A trace is a list of names of chunks, in the order in which they are asked for. Both give a list of bools, hit or miss, one for each.
SPDX-License-Identifier: Apache-2.0"""
import collections
import heapq


def by_min(trace, room):
    """The fewest misses that any cache can have that holds `room` chunks; one that is read latest of all may stay out."""
    never = len(trace)
    next_use, seen = [never] * len(trace), {}
    for at in range(len(trace) - 1, -1, -1):
        next_use[at] = seen.get(trace[at], never)
        seen[trace[at]] = at
    resident, farthest, hits = {}, [], []
    for at, chunk in enumerate(trace):
        hits.append(chunk in resident)
        resident[chunk] = next_use[at]
        heapq.heappush(farthest, (-next_use[at], chunk))
        while len(resident) > room:
            use, last = heapq.heappop(farthest)
            if resident.get(last) == -use:
                del resident[last]
    return hits


def by_lru(trace, room):
    resident, hits = collections.OrderedDict(), []
    for chunk in trace:
        hits.append(chunk in resident)
        resident[chunk] = True
        resident.move_to_end(chunk)
        if len(resident) > room:
            resident.popitem(last=False)
    return hits

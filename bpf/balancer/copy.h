/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copies of map entries, for `fairlead trace`. The object compiled with TRACING only
 * reads the live maps: wherever the load balancer may write an entry, it gets a copy.
 * An entry is copied when the packet first needs it, so a trace costs the same with
 * ten flows as with ten million. The maps of copies belong to one trace and end with
 * it.
 *
 * The attached object contains none of this.
 */
#ifndef FAIRLEAD_BALANCER_COPY_H
#define FAIRLEAD_BALANCER_COPY_H

#include "common.h"
#include "trace_event.h"

#ifdef TRACING

/* One packet needs at most about 1,030 entries of a map: fullnat tries 64 ports with
 * two lines each, and checks eight flows per line (nat.h).
 */
#define COPIES_MAX 2048

#define COPIES(name, value_type)                                                                   \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_HASH);                                                   \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                              \
		__uint(max_entries, COPIES_MAX);                                                   \
		__type(key, __u32);                                                                \
		__type(value, value_type);                                                         \
	} name SEC(".maps")

/* Copies an entry. Returns NULL if there is no room, which the agent reports. */
static __always_inline void *copy_make(void *copies, __u32 index, const void *live)
{
	if (bpf_map_update_elem(copies, &index, live, BPF_ANY)) {
		trace_events.uncopied++;
		return NULL;
	}
	return bpf_map_lookup_elem(copies, &index);
}

static __always_inline void *copy_get(void *copies, __u32 index, const void *live)
{
	void *copy = bpf_map_lookup_elem(copies, &index);

	return copy || !live ? copy : copy_make(copies, index, live);
}

/* A writable version of a live map's entry: the trace's copy. */
#define writable(copies, index, live) copy_get(&(copies), index, live)

#else

/* An empty declaration that permits a trailing semicolon. */
#define COPIES(name, value_type) _Static_assert(sizeof(value_type), "")
#define writable(copies, index, live) (live)

#endif
#endif

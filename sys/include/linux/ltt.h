/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * Trace buffers for user space that the kernel owns.
 *
 * See Documentation/trace/ltt.rst. All fields are in the machine's byte order,
 * all sizes and positions are in bytes, and all times are readings of the
 * clock that struct ltt_info_trace names, unless a comment says otherwise.
 *
 * Structures grow at their ends. System calls and ioctls take the size of the
 * caller's structure. If that is smaller than the kernel's, the rest counts as
 * zeros. If it is larger, the part that the kernel does not know must be zeros,
 * or the call fails with E2BIG. The kernel fills what fits, and sets the rest to
 * zeros. A size that is less than in version 2 of the ABI, LTT_..._SIZE_VER2,
 * fails with EINVAL.
 */
#ifndef _UAPI_LINUX_LTT_H
#define _UAPI_LINUX_LTT_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define LTT_ABI_VERSION		2

/*
 * Upper bounds, for readers that allocate memory: 32-bit masks have a bit for
 * each. struct ltt_tracebuf and struct ltt_info have the actual numbers.
 */
#define LTT_MAX_TRACES		32	/* slots, traces that exist at once */
#define LTT_MAX_CHANNELS	32	/* channels in one trace */

#define LTT_NAME_LEN		32	/* trace and channel names, with the NUL */
#define LTT_COMM_LEN		16	/* TASK_COMM_LEN */

/*
 * Discovery: prctl(PR_LTT_GET_ABI, struct ltt_abi *, size, 0, 0).
 *
 * A kernel without this ABI returns EINVAL, because nothing else uses this
 * option. The answer contains the numbers of the system calls, so that no
 * program ever makes a call by a number that belongs to something else.
 */
#define PR_LTT_GET_ABI		0x4c545442

struct ltt_abi {
	__u32 size;		/* out: what the kernel knows of this struct */
	__u32 version;		/* out: LTT_ABI_VERSION */
	__u64 features;		/* out: 0, no feature is defined yet */
	__u32 nr_alloc_tracebuf;
	__u32 nr_ltt_update;
	__u32 nr_ltt_switch;
	__u32 reserved;
};

/*
 * long alloc_tracebuf(struct ltt_tracebuf *args, size_t size, unsigned int flags);
 * long ltt_update(void **buffer, int *active, int *filter);
 * long ltt_switch(void *buffer);
 *
 * ltt_switch(buffer + N), with 0 < N < 256, says that an event has matched the
 * trigger with number N of the trace, see LTT_RULE_TRIGGER.
 */
struct ltt_tracebuf {
	__u64 buffers;		/* out: the write area: nr_slots slots */
	__u64 buffers_len;
	__u64 control;		/* out: the read/write area: nr_slots slots */
	__u64 control_len;
	__u64 info;		/* out: the read-only area: struct ltt_info */
	__u64 info_len;
	__u32 signo;		/* in: the update signal, 0: none */
	__u32 flags;		/* in: 0 */
	__u64 buffers_stride;	/* out: size of a slot of the write area */
	__u64 control_stride;	/* out: size of a slot of the read/write area */
	__u32 nr_slots;		/* out: at most LTT_MAX_TRACES */
	__u32 status;		/* out: LTT_TRACEBUF_* */
};

#define LTT_TRACEBUF_SIZE_VER2	80

/*
 * The slots of the write area were made smaller, because the areas take at most
 * an eighth of RLIMIT_AS. ltt_update() skips a trace whose rings do not fit into
 * buffers_stride bytes, and "stats" of that trace lists this process.
 */
#define LTT_TRACEBUF_LIMITED	0x1

/*
 * The info area: written by the kernel under a seqlock, with the same contents
 * for every process. It reads as zeros (magic 0) until the first trace of the
 * system has buffers.
 */
#define LTT_INFO_MAGIC		0x4c545449	/* "ITTL" */

/*
 * The clock of a trace, chosen when the trace is created: the counter of the
 * processor if it is valid, otherwise CLOCK_MONOTONIC in ns. The TSC is invalid
 * if the kernel considers it unstable.
 */
#define LTT_CLOCK_TSC		1	/* x86: rdtsc */
#define LTT_CLOCK_CNTVCT	2	/* arm64: cntvct_el0 */
#define LTT_CLOCK_TIME		3	/* riscv: rdtime */
#define LTT_CLOCK_MONOTONIC	4	/* CLOCK_MONOTONIC, in ns */

struct ltt_info_slot {
	__u64 generation;	/* of the trace in this slot, never reused; 0: no trace */
	__u32 active;
	__u32 filter;		/* 32-bit filter mask: bit n accepts events of log level n */
	__u32 nr_channels;	/* 0: not fixed yet, and there are no buffers */
	__u32 reserved[3];	/* 0 */
};

/*
 * The start of the info area. Offsets are relative to it; those of channels to
 * the start of the trace's part. A stride is the distance between two elements,
 * and at least the size of the structure in version 2 of the ABI. All offsets
 * and strides are multiples of 8.
 */
struct ltt_info {
	__u32 magic;		/* LTT_INFO_MAGIC */
	__u32 version;		/* LTT_ABI_VERSION */
	__u32 seq;		/* seqlock: odd while the kernel writes */
	__u32 size;		/* what the kernel knows of this struct */
	__u64 generation;	/* a different value after each change */
	__u32 active;		/* one bit for each slot whose trace is active */
	__u32 nr_cpus;		/* rings of a per-CPU channel; CPU numbers are below it */
	/* The rest never changes: */
	__u32 nr_slots;		/* as in struct ltt_tracebuf */
	__u32 nr_channels;	/* that a trace can have, at most LTT_MAX_CHANNELS */
	__u32 slot_offset;	/* struct ltt_info_slot, for each slot */
	__u32 slot_stride;
	__u32 trace_offset;	/* struct ltt_info_trace, for each slot */
	__u32 trace_stride;
	__u32 filter_offset;	/* struct ltt_info_filter, for each slot */
	__u32 filter_stride;
	__u32 channel_offset;	/* struct ltt_info_channel, for each channel of a trace */
	__u32 channel_stride;
	__u32 rules_size;	/* room for rules in a struct ltt_info_filter */
	__u32 reserved[13];	/* 0 */
};

#define LTT_SCOPE_CPU		0	/* a ring for each CPU */
#define LTT_SCOPE_THREAD	1	/* a ring for each thread */
#define LTT_SCOPE_GLOBAL	2	/* one ring for the process */
#define LTT_SCOPE_MM_CID	3	/* a ring for each mm_cid of struct rseq */

#define LTT_MODE_DISCARD	0	/* a full ring drops new records */
#define LTT_MODE_OVERWRITE	1	/* a full ring drops the oldest sub-buffer */
#define LTT_MODE_BLOCK		2	/* a full ring makes its writers wait */
#define LTT_MODE_COUNT		3	/* no ring: a table that counts events; never changes */

#define LTT_PROTOCOL_RSEQ	0	/* whole records committed by one store of head */
#define LTT_PROTOCOL_SHARED	1	/* atomic reserve and commit */
#define LTT_PROTOCOL_COUNT	2	/* struct ltt_count_cell, see there */

/*
 * Channel 0 of each trace is "control". It has one record of LTT_ID_META for
 * each event (its id, name and fields), is never overwritten, and never
 * consumed. Channel 1 is "main". An event that the trace accepts goes to the
 * first other channel, by index, whose filter accepts it, and otherwise to
 * main. A channel without rings does not exist.
 */
#define LTT_CHANNEL_CONTROL	0
#define LTT_CHANNEL_MAIN	1

struct ltt_info_channel {
	char  name[LTT_NAME_LEN];
	__u64 buffers_offset;	/* ring 0, from the start of the trace's slot of the write area */
	__u64 control_offset;	/* ring 0's struct ltt_ring_control, likewise in the control area */
	__u32 subbuf_size;	/* a power of two, a multiple of 4096 */
	__u32 subbuf_count;	/* a power of two, at least 2 */
	__u32 nr_rings;		/* ring n starts at n * subbuf_size * subbuf_count */
	__u32 control_stride;	/* between control blocks */
	__u32 scope;		/* LTT_SCOPE_* */
	__u32 mode;		/* LTT_MODE_*, can change at any time */
	__u32 protocol;		/* LTT_PROTOCOL_* */
	__u32 filter;		/* 32-bit filter mask, from channel 2 on; can change, too */
	__u32 cell_size;	/* LTT_MODE_COUNT: LTT_COUNT_CELL_*; otherwise 0 */
	__u32 reserved[7];
};

/* The trace in a slot. struct ltt_info says where its channels are. */
struct ltt_info_trace {
	char  name[LTT_NAME_LEN];
	__u64 generation;
	__u32 clock;		/* LTT_CLOCK_* */
	__u32 reserved0;	/* 0 */
	__u64 clock_freq;	/* of the clock, in Hz; 0: unknown */
	__u64 reserved[9];	/* 0 */
};

/*
 * The filter rules of the trace in a slot, as a sequence of struct
 * ltt_info_rule.
 *
 * Of the rules of a channel the last one that matches decides. If none matches,
 * the event is refused. The rules of channel 0 are those of the trace: an event
 * that they refuse goes to no channel.
 *
 * A pattern consists of letters, digits, _ - . : and the wildcards * for any
 * characters and ? for any one. With a colon it is matched against
 * PROVIDER:NAME, otherwise against NAME.
 *
 * An entry with LTT_RULE_CONTEXT is not a rule. It names a context that the
 * records of the channel begin with, see LTT_ID_META. Contexts do not change
 * once there are buffers.
 *
 * A rule of channel 0 can have an expression over the fields and contexts of
 * the event, in pieces: entries with LTT_RULE_EXPR that follow it. The kernel
 * only limits its size and the nesting of its parentheses. Programs evaluate
 * it before they reserve room for the event:
 *
 * - LTT_RULE_REFUSE | LTT_RULE_ACCEPT_IF decides as any rule: it accepts the
 *   event if the expression is true, and otherwise refuses it.
 * - LTT_RULE_REFUSE | LTT_RULE_REFUSE_IF refuses the event if the expression is
 *   true. Otherwise, the rules before it decide.
 *
 * What is no expression accepts nothing. A program that does not know these
 * flags refuses what matches.
 *
 * An entry with LTT_RULE_TRIGGER is not a rule, either. It is a trigger of the
 * trace: channel has its number, which no other trigger of the system has. Pieces
 * of an expression can follow, with the same channel. After an event of which the
 * pattern matches and the expression is true, the program calls ltt_switch() with
 * the number. Rules do not matter for that, nor whether the trace is active. What
 * is no expression never matches.
 *
 * An entry with LTT_RULE_VALUE or LTT_RULE_KEY is not a rule, either. It names
 * what a channel that counts takes from an event: the field whose values it
 * adds up, and the field or context ($ctx.NAME) whose values it tells apart.
 * Neither changes once there are buffers.
 */
struct ltt_info_filter {
	__u64 generation;	/* of the trace */
	__u32 len;		/* bytes of rules, at most rules_size */
	__u32 reserved;		/* 0 */
	__u8  rules[];
};

#define LTT_RULE_REFUSE		0x1	/* refuses what matches */
#define LTT_RULE_CONTEXT	0x2	/* the pattern is the name of a context */
#define LTT_RULE_ACCEPT_IF	0x4	/* accepts what matches if the expression is true */
#define LTT_RULE_REFUSE_IF	0x8	/* refuses what matches if the expression is true */
#define LTT_RULE_EXPR		0x10	/* the pattern is a piece of an expression */
#define LTT_RULE_TRIGGER	0x20	/* the pattern is that of a trigger */
#define LTT_RULE_VALUE		0x40	/* the pattern is the name of a field */
#define LTT_RULE_KEY		0x80	/* the pattern is the name of a field or $ctx.NAME */

#define LTT_EXPR_MAX		2048	/* bytes of an expression */
#define LTT_EXPR_DEPTH		64	/* parentheses inside each other */

#define LTT_MAX_CONTEXTS	16	/* in one channel */
#define LTT_CALLSTACK_MAX	64	/* addresses in a callstack */
#define LTT_MAX_TRIGGERS	8	/* of one trace */

struct ltt_info_rule {
	__u8  channel;		/* or the number of a trigger */
	__u8  flags;		/* LTT_RULE_* */
	__u8  len;		/* of the pattern, at least 1 */
	__u8  pattern[];	/* without NUL */
};

/*
 * A ring consists of subbuf_count sub-buffers of subbuf_size bytes. Positions
 * count the bytes since the ring was made, and never wrap. The byte at position
 * p is at p % (subbuf_size * subbuf_count).
 */
struct ltt_ring_control {
	__u64 head;		/* LTT_PROTOCOL_RSEQ: everything below is committed; */
				/* LTT_PROTOCOL_SHARED: everything below is reserved */
	__u64 lost;		/* records that were dropped because the ring was full */
	__u64 time;		/* newest full time stamp in the ring */
	__u64 ids;		/* ring 0 of the control channel: ids of events assigned so far */
	__u64 claimed;		/* LTT_PROTOCOL_RSEQ and LTT_MODE_OVERWRITE: */
				/* everything below may be overwritten by now */
	__u32 owner;		/* LTT_SCOPE_THREAD: the thread that writes here, 0: free */
	__u32 waiters;		/* LTT_MODE_BLOCK: writers that wait for consumed to grow */
	__u32 readers;		/* LTT_MODE_BLOCK: 0: nobody consumes; a copy */
	__u32 reserved;
	__u64 reserved0;
	__u64 consumed;		/* everything below may be overwritten; a copy */
	__u64 reserved1[7];
};

#define LTT_SUBBUF_MAGIC	0x4c545453

/*
 * The header of each sub-buffer that was begun. Records follow.
 *
 * committed and busy are never reset, so they keep the values of earlier rounds
 * of the ring. A writer skips the place of a sub-buffer that a writer of an
 * earlier round has not left: the header there keeps its old position, and the
 * next place is taken. With LTT_PROTOCOL_RSEQ, a writer is there if busy is not
 * 0. With LTT_PROTOCOL_SHARED, one is there if committed is not subbuf_size *
 * takes; busy then has the decision, which is made before head goes there.
 */
#define LTT_PLACE_TAKEN		0x1	/* the place is taken, not skipped */
#define LTT_PLACE_LAP_SHIFT	1	/* the round of the ring that this is about, from 1 on */

struct ltt_subbuf {
	__u64 position;		/* of this header */
	__u64 time;		/* when the sub-buffer was begun */
	__u64 lost;		/* the ring's count of lost records at that time */
	__u32 cpu;		/* LTT_SCOPE_CPU: the CPU that writes here */
				/* LTT_SCOPE_THREAD: the thread */
				/* LTT_SCOPE_MM_CID: the mm_cid */
	__u32 magic;		/* LTT_SUBBUF_MAGIC */
	/* LTT_PROTOCOL_SHARED: */
	__u64 base;		/* committed, when the sub-buffer was begun */
	__u64 committed;	/* bytes ever committed at this place */
	__u64 contiguous;	/* from position up to here everything is committed */
	__u32 busy;		/* LTT_PROTOCOL_RSEQ: long records being written here */
				/* LTT_PROTOCOL_SHARED: the last decision, LTT_PLACE_* */
	__u32 takes;		/* LTT_PROTOCOL_SHARED: how often the place was taken */
};

/*
 * A channel of LTT_MODE_COUNT has a table in place of each ring: cells of
 * cell_size bytes, as many as fit into subbuf_size * subbuf_count bytes. Cell 0
 * counts what found no other cell. The others are a hash table. A writer probes
 * up to LTT_COUNT_PROBES cells in order, from cell 1 + hash(id, key) % (cells -
 * 1). Each library can have its own hash: readers go through the whole table,
 * and add up the cells of the same event and key.
 *
 * An event's payload goes nowhere. Its update reads count, and stores everything
 * in one restartable sequence, which commits by the store of count + 1. So a
 * state is whole between any two instructions:
 *
 * - state[count & 1] is the current one. An update fills the other.
 * - The count of one histogram bucket is in "bucket" of the current state. The
 *   next update stores it in the histogram, before anything else. Until then,
 *   the histogram may have the value before.
 *
 * A reader reads count, copies the cell, reads count again, and repeats that if
 * it has changed. Of a table, ltt_ring_control.head is 0, or the size of the
 * table once something was counted; lost counts events that no cell has.
 */
struct ltt_count_state {
	__u64 sum_low;		/* of all values: 128 bits, two's complement */
	__u64 sum_high;
	__u64 min;		/* signed if the field is */
	__u64 max;
	__u64 bucket;		/* 0 before the first value, or the index of the last */
				/* value's bucket in bits 56..63, and that bucket's */
				/* count in bits 0..55 */
};

#define LTT_COUNT_PROBES	16
#define LTT_COUNT_BUCKETS	64	/* 0: values <= 0; n: 2^(n-1) <= value < 2^n; */
					/* 63: all above, too */
#define LTT_COUNT_BUCKET_SHIFT	56
#define LTT_COUNT_KEY_MAX	32	/* bytes of a text key; the rest is cut off */
#define LTT_COUNT_KEY_NUMBER	0xffffffff

#define LTT_COUNT_CELL_PLAIN	64	/* cell_size without a value: up to key, and padding */
#define LTT_COUNT_CELL_VALUE	640	/* cell_size with a value */

struct ltt_count_cell {
	__u64 count;		/* of events; 0: the cell is free */
	__u32 id;		/* of the event; 0 in cell 0 */
	__u32 key_len;		/* bytes of a text in key; LTT_COUNT_KEY_NUMBER: key[0] is */
				/* a number; 0: the event has no key */
	__u64 key[4];		/* zeros behind the key */
	/* LTT_COUNT_CELL_VALUE: */
	struct ltt_count_state state[2];
	__u64 histogram[LTT_COUNT_BUCKETS];	/* of values */
};

/*
 * A record is a header word, a payload, and padding to a multiple of 8. It is
 * always within one sub-buffer. The header has the id of the event in bits
 * 0..15, and the low 48 bits of the time in bits 16..63. The full time is that
 * of the previous record (or of the sub-buffer, or of an LTT_ID_TIME record),
 * advanced by less than 2^48. The metadata of the event gives the length of the
 * payload.
 */
#define LTT_ID_BITS		16
#define LTT_ID_NONE		0	/* never written: nothing else up to the sub-buffer's end */
#define LTT_ID_MIN		1	/* ids of events: from here */
#define LTT_ID_MAX		0xffef	/*                to here   */
#define LTT_ID_LOST		0xfffb	/* there was no memory: nothing else up to the end */
#define LTT_ID_META		0xfffc	/* describes an event, see below */
#define LTT_ID_LONG		0xfffd	/* a second word follows, see LTT_LONG_* */
#define LTT_ID_TIME		0xfffe	/* a full time stamp follows, 8 bytes */
#define LTT_ID_PAD		0xffff	/* nothing else up to the sub-buffer's end */

/*
 * The second word of a long record: the length of the whole record, including
 * both words and padding, the id of the event, and whether the payload is
 * complete. A record with BUSY is reserved, and its payload means nothing.
 */
#define LTT_LONG_LEN_MASK	0x00000000ffffffffULL
#define LTT_LONG_ID_SHIFT	32
#define LTT_LONG_ID_MASK	0x0000ffffULL
#define LTT_LONG_DONE		(1ULL << 62)
#define LTT_LONG_BUSY		(1ULL << 63)

/*
 * If there was no memory for a page, what was written there is lost. Until the
 * sub-buffer is consumed, readers see a page of these words in its place. A
 * record that lies in it, even in part, is lost, and so is everything after it
 * in the sub-buffer. Of a table, the cells that lie in it are lost.
 */
#define LTT_LOST_WORD		(0x4c54544c4f530000ULL | LTT_ID_LOST)

/*
 * The payload of a LTT_ID_META record is one line of text that ends with NUL:
 *
 *	ID PROVIDER:NAME LOGLEVEL[ TYPE FIELD[;TYPE FIELD]...]
 *
 * ID and LOGLEVEL are decimal. Fields are packed in this order without padding
 * between them, in the machine's byte order. TYPE is one of
 *
 *	u8 u16 u32 u64	unsigned, shown in decimal
 *	x8 x16 x32 x64	unsigned, shown in hexadecimal
 *	s8 s16 s32 s64	signed
 *	u16be ...	those of 16, 32 and 64 bits, in network byte order
 *	f32 f64		IEEE 754
 *	bool		1 byte, 0 or 1
 *	str		text, up to and with a NUL
 *	T[N]		N elements, 0 < N <= 65535; T: any of the above but str, or c8
 *	T[]		a u32 that says how many elements follow, and they
 *	T{LABEL,...}	an enumeration; T: an integer
 *
 * c8 is a byte of text, and not a TYPE by itself. The text of c8[N] ends before
 * the first NUL, or at the end of the array; that of c8[] has its full length.
 * Texts are UTF-8.
 *
 * LABEL is TEXT=VALUE or TEXT=FIRST..LAST (inclusive). Values are decimal, can be
 * negative, and can have several labels. In TEXT, all bytes except ASCII letters,
 * digits and _ . - are written as %XX, in upper-case hexadecimal.
 *
 * The first "field" of a marker is fmt TEXT, not empty: its format, with the names
 * of fields in braces. It takes no space in the payload.
 *
 * If a channel asks for contexts, this line comes before any record of it:
 *
 *	@CHANNEL TYPE FIELD[;TYPE FIELD]...
 *
 * The payloads in the channel with this index begin with these fields, padded with
 * zeros to a multiple of 8. The fields of the event follow. Contexts are
 *
 *	vpid, vtid	process and thread, as they see themselves
 *	procname	the name of the thread
 *	cpu_id		the CPU
 *	ip		where in the program the event is
 *	callstack	ip, and the return addresses of the calls that led there, from
 *			the innermost: x64[], at most 16. callstack:N: at most N, which
 *			is at most LTT_CALLSTACK_MAX. The field is callstack
 *	cgroup_ns, ipc_ns, mnt_ns, net_ns, pid_ns, time_ns, user_ns, uts_ns
 *			the inode numbers of the thread's namespaces
 *	app.NAME	what the program says
 *
 * If a channel counts, this line comes before its first event. VALUE and KEY are
 * what "value" and "key" of the channel name, or - if they name nothing:
 *
 *	#CHANNEL VALUE KEY
 *
 * One line can contain the command line, with its arguments separated by spaces,
 * as far as the program knew it when it started:
 *
 *	$ TEXT
 *
 * in which bytes are encoded as in LABEL. If there are several, the first counts.
 *
 * The objects that are loaded, and those that are unloaded later, have lines
 *
 *	+BASE SIZE PIC BUILD_ID CRC LINK PATH
 *	-BASE
 *
 * BASE is where the lowest segment begins, and SIZE reaches to the end of the
 * highest one. PIC is 1 if the object can be loaded anywhere, 0 if only there. CRC
 * and LINK are of .gnu_debuglink. All numbers and BUILD_ID are hexadecimal, in lower
 * case. LINK and PATH are encoded as in LABEL. What is not known is a single -.
 */
#define LTT_META_MAX		2048	/* with the NUL */

/*
 * Consumer files: one for each process and channel, in the directory of the
 * channel in the control file system. mmap() maps the rings read-only, from
 * offset 0. poll() reports POLLIN while a ring has records that were not
 * consumed, and POLLHUP when the process is dead and all records of the channel
 * were consumed (those of all channels, for the control channel). A table is
 * consumed once consumed is head. It is never reported by POLLIN.
 */
struct ltt_clock_sync {
	__u64 cycles;		/* of the trace's clock */
	__u64 monotonic;	/* CLOCK_MONOTONIC at that time, in ns */
	__u64 realtime;		/* CLOCK_REALTIME at that time, in ns */
	__u64 freq;		/* of the trace's clock in Hz; 0: unknown, compare two of these */
};

#define LTT_FILE_DEAD		0x1	/* the process is gone, or executed another program */
#define LTT_FILE_STOPPED	0x2	/* the trace is not active */
#define LTT_FILE_REMOVED	0x4	/* the trace was removed */
#define LTT_FILE_CLOCK_UNSTABLE	0x8	/* the clock became invalid after the trace was created: */
					/* times of different CPUs may be in a wrong order */

struct ltt_file_info {
	__u32 size;		/* out: what the kernel knows of this struct */
	__u32 flags;		/* LTT_FILE_* */
	__u32 pid;		/* in the initial namespace, at alloc_tracebuf */
	__u32 uid;		/* likewise */
	__u64 start_time;	/* of the process, CLOCK_BOOTTIME in ns */
	__u64 process;		/* number of this process's buffers, never reused */
	__u64 trace_generation;
	char  comm[LTT_COMM_LEN];
	__u32 clock;		/* LTT_CLOCK_* */
	__u32 channel_index;
	struct ltt_clock_sync start;	/* when the trace was created */
	struct ltt_clock_sync now;
	__u64 sunk;		/* pages that found no memory at a write */
	__u64 reserved[3];
	char  trace[LTT_NAME_LEN];
	struct ltt_info_channel channel;
};

#define LTT_FILE_INFO_SIZE_VER2	304

struct ltt_ring_positions {
	__u64 head;		/* the program's value: must be checked */
	__u64 lost;		/* likewise */
	__u64 claimed;		/* likewise */
	__u64 consumed;		/* the kernel's own */
};

#define LTT_RING_POSITIONS_SIZE_VER2 32

struct ltt_positions {
	__u64 rings;		/* in: address of nr_rings struct ltt_ring_positions */
	__u32 nr_rings;		/* in: room for so many; out: how many there are */
	__u32 flags;		/* out: LTT_FILE_* */
	__u32 stride;		/* in: the caller's size of struct ltt_ring_positions, */
				/* a multiple of 8 */
	__u32 reserved;		/* 0 */
};

#define LTT_POSITIONS_SIZE_VER2	24

/*
 * The first open file of a channel that consumes owns its consumed position
 * until it is closed. Others can read, and get EBUSY if they consume. To own it
 * before there is anything to read, consume up to the present position. Needs a
 * file that is open for writing, otherwise EBADF.
 */
struct ltt_consume {
	__u32 ring;
	__u32 reserved;		/* 0 */
	__u64 position;		/* consumed <= position <= head */
};

#define LTT_CONSUME_SIZE_VER2	16

/*
 * Ends the current sub-buffer of a ring if it has records, so that the next
 * record begins another one. The kernel does it on the CPU of the ring, and
 * restarts a sequence that it interrupts. EOPNOTSUPP for rings that do not
 * belong to a CPU, EBADF unless the file is open for writing.
 */
#define LTT_RING_ALL		0xffffffff

struct ltt_end_subbuf {
	__u32 ring;		/* or LTT_RING_ALL */
	__u32 reserved;		/* 0 */
};

#define LTT_END_SUBBUF_SIZE_VER2 8

/* The number of an ioctl contains the size of the caller's structure. */
#define LTT_IOC_INFO		_IOR('L', 0x20, struct ltt_file_info)
#define LTT_IOC_POSITIONS	_IOWR('L', 0x21, struct ltt_positions)
#define LTT_IOC_CONSUME		_IOW('L', 0x22, struct ltt_consume)
#define LTT_IOC_END_SUBBUF	_IOW('L', 0x23, struct ltt_end_subbuf)

#endif /* _UAPI_LINUX_LTT_H */

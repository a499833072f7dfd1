/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * What a tool needs to find the trace buffers in a dump of physical memory.
 *
 * vmcoreinfo has the line "NUMBER(ltt_root)=0x...", the physical address of the
 * root page. All other addresses are physical addresses of pages of page_size
 * bytes. A reader needs no symbols, no DWARF, and no virtual addresses.
 */
#ifndef _UAPI_LINUX_LTT_CRASH_H
#define _UAPI_LINUX_LTT_CRASH_H

#include <linux/ltt.h>
#include <linux/types.h>

#define LTT_CRASH_MAGIC		0x544f4f5254544cabULL	/* can also be found by scanning */
#define LTT_CRASH_PAGE_MAGIC	0x4745524944ab544cULL
#define LTT_CRASH_RESERVED_MAGIC 0x5345525344ab544cULL
#define LTT_CRASH_VERSION	2

/*
 * The root page. Everything before "sum" is written once at boot. "sum" makes
 * the 64-bit words before it and itself add up to 0. "directory" is the first
 * page of the directory, or 0 before the first trace.
 */
struct ltt_crash_root {
	__u64 magic;		/* LTT_CRASH_MAGIC */
	__u32 version;		/* LTT_CRASH_VERSION */
	__u32 page_size;
	__u32 entry_size;	/* sizeof(struct ltt_crash_entry) */
	__u32 clock;		/* LTT_CLOCK_* of the processor, which boot.cycles is of */
	__u64 sum;
	__u64 directory;	/* physical address of a struct ltt_crash_page */
	struct ltt_clock_sync boot;	/* when the root was made */
};

/*
 * The first page of a part of the memory that was reserved for traces at boot
 * and that survives a reset. Everything that its root page leads to is in the
 * same part. "sum" makes the words before it and itself add up to 0.
 */
struct ltt_crash_reserved {
	__u64 magic;		/* LTT_CRASH_RESERVED_MAGIC */
	__u64 start;		/* physical address of this page */
	__u64 size;		/* of the part, in bytes, this page included */
	__u64 boot;		/* increases with each boot */
	__u64 sum;
	__u64 reserved[3];
	struct ltt_crash_root root;
};

/* A page of the directory: this header, and entries up to its end. */
struct ltt_crash_page {
	__u64 magic;		/* LTT_CRASH_PAGE_MAGIC */
	__u64 next;		/* physical address of the next page, or 0 */
	__u64 reserved[30];
};

#define LTT_CRASH_FREE		0	/* no entry */
#define LTT_CRASH_TRACE		1
#define LTT_CRASH_CHANNEL	2
#define LTT_CRASH_PROCESS	3
#define LTT_CRASH_BUFFER	4

/* A trace, while it exists. */
struct ltt_crash_trace {
	__u64 generation;
	char  name[LTT_NAME_LEN];
	__u32 slot;
	__u32 active;
	struct ltt_clock_sync start;
	__u32 clock;		/* LTT_CLOCK_* */
	__u32 clock_unstable;	/* not 0: it became invalid meanwhile, as far as known */
};

/* A channel of a trace, once its geometry is fixed. */
struct ltt_crash_channel {
	__u64 trace;		/* generation */
	__u32 index;
	__u32 reserved;
	struct ltt_info_channel channel;
};

/* A process that has buffers. */
struct ltt_crash_process {
	__u64 process;		/* its number, never reused */
	__u64 start_time;	/* CLOCK_BOOTTIME in ns */
	__u32 pid;		/* in the initial namespace */
	__u32 uid;
	__u32 dead;
	__u32 reserved;
	char  comm[LTT_COMM_LEN];
};

/*
 * The pages of one process for one trace, as two trees of pages of 64-bit
 * words. A tree has depth levels, and page_size / 8 words in each page. The
 * words of the lowest level stand for the pages, in order, of the trace's slot
 * in the write area and in the control area. The words above it stand for pages
 * of words. Without LTT_CRASH_PRESENT a word leads nowhere. LTT_CRASH_LOST, only
 * at the lowest level, says that something was written for which there was no
 * memory: readers see a page of LTT_LOST_WORD.
 */
#define LTT_CRASH_PRESENT	0x1ULL
#define LTT_CRASH_LOST		0x2ULL
#define LTT_CRASH_ADDRESS	0xfffffffffffff000ULL	/* physical */

struct ltt_crash_tree {
	__u64 root;		/* a word like those in the tree */
	__u64 pages;		/* pages that the tree can stand for */
	__u32 depth;		/* 1: root is a page of words that stand for pages */
	__u32 reserved;
};

struct ltt_crash_buffer {
	__u64 process;
	__u64 trace;		/* generation */
	struct ltt_crash_tree buffers;
	struct ltt_crash_tree control;
};

/*
 * An entry is filled first, and storing its kind publishes it. Storing
 * LTT_CRASH_FREE withdraws it, before anything it refers to is freed. What
 * changes in between (active, dead, tree words) is changed by single stores.
 */
struct ltt_crash_entry {
	__u32 kind;		/* LTT_CRASH_* */
	__u32 reserved;
	__u64 serial;		/* of the publication, increases */
	union {
		struct ltt_crash_trace trace;
		struct ltt_crash_channel channel;
		struct ltt_crash_process process;
		struct ltt_crash_buffer buffer;
		__u64 words[30];
	};
};

#endif /* _UAPI_LINUX_LTT_CRASH_H */

/* The types of fields: their parameters, metadata, and payload. */
#ifndef USERTRACE_FIELDS_H
#define USERTRACE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * USERTRACE__MAP(m, s, (a), (b), ...) is m(a) s() m(b) ..., for at most 32
 * arguments.
 */
#define USERTRACE__MAP(m, s, ...) \
	USERTRACE__JOIN(USERTRACE__MAP_, USERTRACE__COUNT(__VA_ARGS__))(m, s, __VA_ARGS__)
#define USERTRACE__JOIN(a, b) USERTRACE__JOIN_(a, b)
#define USERTRACE__JOIN_(a, b) a##b
#define USERTRACE__COUNT(...) \
	USERTRACE__COUNT_(__VA_ARGS__, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, \
			  17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define USERTRACE__COUNT_(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, \
			  a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, \
			  a31, a32, n, ...) n
#define USERTRACE__NOTHING()
#define USERTRACE__COMMA() ,
#define USERTRACE__SEMICOLON() ";"
#define USERTRACE__AND() &&
#define USERTRACE__MAP_1(m, s, a) m a
#define USERTRACE__MAP_2(m, s, a, ...) m a s() USERTRACE__MAP_1(m, s, __VA_ARGS__)
#define USERTRACE__MAP_3(m, s, a, ...) m a s() USERTRACE__MAP_2(m, s, __VA_ARGS__)
#define USERTRACE__MAP_4(m, s, a, ...) m a s() USERTRACE__MAP_3(m, s, __VA_ARGS__)
#define USERTRACE__MAP_5(m, s, a, ...) m a s() USERTRACE__MAP_4(m, s, __VA_ARGS__)
#define USERTRACE__MAP_6(m, s, a, ...) m a s() USERTRACE__MAP_5(m, s, __VA_ARGS__)
#define USERTRACE__MAP_7(m, s, a, ...) m a s() USERTRACE__MAP_6(m, s, __VA_ARGS__)
#define USERTRACE__MAP_8(m, s, a, ...) m a s() USERTRACE__MAP_7(m, s, __VA_ARGS__)
#define USERTRACE__MAP_9(m, s, a, ...) m a s() USERTRACE__MAP_8(m, s, __VA_ARGS__)
#define USERTRACE__MAP_10(m, s, a, ...) m a s() USERTRACE__MAP_9(m, s, __VA_ARGS__)
#define USERTRACE__MAP_11(m, s, a, ...) m a s() USERTRACE__MAP_10(m, s, __VA_ARGS__)
#define USERTRACE__MAP_12(m, s, a, ...) m a s() USERTRACE__MAP_11(m, s, __VA_ARGS__)
#define USERTRACE__MAP_13(m, s, a, ...) m a s() USERTRACE__MAP_12(m, s, __VA_ARGS__)
#define USERTRACE__MAP_14(m, s, a, ...) m a s() USERTRACE__MAP_13(m, s, __VA_ARGS__)
#define USERTRACE__MAP_15(m, s, a, ...) m a s() USERTRACE__MAP_14(m, s, __VA_ARGS__)
#define USERTRACE__MAP_16(m, s, a, ...) m a s() USERTRACE__MAP_15(m, s, __VA_ARGS__)
#define USERTRACE__MAP_17(m, s, a, ...) m a s() USERTRACE__MAP_16(m, s, __VA_ARGS__)
#define USERTRACE__MAP_18(m, s, a, ...) m a s() USERTRACE__MAP_17(m, s, __VA_ARGS__)
#define USERTRACE__MAP_19(m, s, a, ...) m a s() USERTRACE__MAP_18(m, s, __VA_ARGS__)
#define USERTRACE__MAP_20(m, s, a, ...) m a s() USERTRACE__MAP_19(m, s, __VA_ARGS__)
#define USERTRACE__MAP_21(m, s, a, ...) m a s() USERTRACE__MAP_20(m, s, __VA_ARGS__)
#define USERTRACE__MAP_22(m, s, a, ...) m a s() USERTRACE__MAP_21(m, s, __VA_ARGS__)
#define USERTRACE__MAP_23(m, s, a, ...) m a s() USERTRACE__MAP_22(m, s, __VA_ARGS__)
#define USERTRACE__MAP_24(m, s, a, ...) m a s() USERTRACE__MAP_23(m, s, __VA_ARGS__)
#define USERTRACE__MAP_25(m, s, a, ...) m a s() USERTRACE__MAP_24(m, s, __VA_ARGS__)
#define USERTRACE__MAP_26(m, s, a, ...) m a s() USERTRACE__MAP_25(m, s, __VA_ARGS__)
#define USERTRACE__MAP_27(m, s, a, ...) m a s() USERTRACE__MAP_26(m, s, __VA_ARGS__)
#define USERTRACE__MAP_28(m, s, a, ...) m a s() USERTRACE__MAP_27(m, s, __VA_ARGS__)
#define USERTRACE__MAP_29(m, s, a, ...) m a s() USERTRACE__MAP_28(m, s, __VA_ARGS__)
#define USERTRACE__MAP_30(m, s, a, ...) m a s() USERTRACE__MAP_29(m, s, __VA_ARGS__)
#define USERTRACE__MAP_31(m, s, a, ...) m a s() USERTRACE__MAP_30(m, s, __VA_ARGS__)
#define USERTRACE__MAP_32(m, s, a, ...) m a s() USERTRACE__MAP_31(m, s, __VA_ARGS__)

/*
 * For each type of field: its name, the parameters of the function that writes
 * the event, the metadata, and the length if it is constant (else 0). PUSH adds
 * it to a payload of constant length, and PART to others.
 */
#define USERTRACE__PARAM(kind, ...) USERTRACE__PARAM_##kind(__VA_ARGS__)
#define USERTRACE__ARG(kind, ...) USERTRACE__ARG_##kind(__VA_ARGS__)
#define USERTRACE__LINE(kind, ...) USERTRACE__LINE_##kind(__VA_ARGS__)
#define USERTRACE__FIXED(kind, ...) (USERTRACE__SIZE_##kind != 0)
#define USERTRACE__PUSH(kind, ...) USERTRACE__PUSH_##kind(__VA_ARGS__)
#define USERTRACE__PART(kind, ...) USERTRACE__PART_##kind(__VA_ARGS__)

/*
 * The parameters of a field, with a prefix: the name of a field may equal that
 * of another field's length, something else in the program (-Wshadow), or a
 * keyword of C.
 */
#define USERTRACE__VALUE(name) usertrace__value_##name
#define USERTRACE__LENGTH(name) usertrace__length_##name

/* Scalars. Functions of "payload.h" convert values of other types to unsigned numbers. */
#define USERTRACE__PUSH_SCALAR(bits, name, size) \
	usertrace__push(&usertrace__payload, bits(USERTRACE__VALUE(name)), size);
#define USERTRACE__PART_SCALAR(bits, name, size) \
	usertrace__scalar(&usertrace__payload, bits(USERTRACE__VALUE(name)), size);
#define USERTRACE__TYPE_u8 uint8_t
#define USERTRACE__NAME_u8 "u8"
#define USERTRACE__SIZE_u8 1
#define USERTRACE__PARAM_u8(name) uint8_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_u8(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_u8(name) USERTRACE__NAME_u8 " " #name
#define USERTRACE__PUSH_u8(name) USERTRACE__PUSH_SCALAR(, name, 1)
#define USERTRACE__PART_u8(name) USERTRACE__PART_SCALAR(, name, 1)

#define USERTRACE__TYPE_x8 uint8_t
#define USERTRACE__NAME_x8 "x8"
#define USERTRACE__SIZE_x8 1
#define USERTRACE__PARAM_x8(name) uint8_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_x8(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_x8(name) USERTRACE__NAME_x8 " " #name
#define USERTRACE__PUSH_x8(name) USERTRACE__PUSH_SCALAR(, name, 1)
#define USERTRACE__PART_x8(name) USERTRACE__PART_SCALAR(, name, 1)

#define USERTRACE__TYPE_s8 int8_t
#define USERTRACE__NAME_s8 "s8"
#define USERTRACE__SIZE_s8 1
#define USERTRACE__PARAM_s8(name) int8_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_s8(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_s8(name) USERTRACE__NAME_s8 " " #name
#define USERTRACE__PUSH_s8(name) USERTRACE__PUSH_SCALAR(usertrace__s8, name, 1)
#define USERTRACE__PART_s8(name) USERTRACE__PART_SCALAR(usertrace__s8, name, 1)

#define USERTRACE__TYPE_u16 uint16_t
#define USERTRACE__NAME_u16 "u16"
#define USERTRACE__SIZE_u16 2
#define USERTRACE__PARAM_u16(name) uint16_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_u16(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_u16(name) USERTRACE__NAME_u16 " " #name
#define USERTRACE__PUSH_u16(name) USERTRACE__PUSH_SCALAR(, name, 2)
#define USERTRACE__PART_u16(name) USERTRACE__PART_SCALAR(, name, 2)

#define USERTRACE__TYPE_x16 uint16_t
#define USERTRACE__NAME_x16 "x16"
#define USERTRACE__SIZE_x16 2
#define USERTRACE__PARAM_x16(name) uint16_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_x16(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_x16(name) USERTRACE__NAME_x16 " " #name
#define USERTRACE__PUSH_x16(name) USERTRACE__PUSH_SCALAR(, name, 2)
#define USERTRACE__PART_x16(name) USERTRACE__PART_SCALAR(, name, 2)

#define USERTRACE__TYPE_s16 int16_t
#define USERTRACE__NAME_s16 "s16"
#define USERTRACE__SIZE_s16 2
#define USERTRACE__PARAM_s16(name) int16_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_s16(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_s16(name) USERTRACE__NAME_s16 " " #name
#define USERTRACE__PUSH_s16(name) USERTRACE__PUSH_SCALAR(usertrace__s16, name, 2)
#define USERTRACE__PART_s16(name) USERTRACE__PART_SCALAR(usertrace__s16, name, 2)

#define USERTRACE__TYPE_u32 uint32_t
#define USERTRACE__NAME_u32 "u32"
#define USERTRACE__SIZE_u32 4
#define USERTRACE__PARAM_u32(name) uint32_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_u32(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_u32(name) USERTRACE__NAME_u32 " " #name
#define USERTRACE__PUSH_u32(name) USERTRACE__PUSH_SCALAR(, name, 4)
#define USERTRACE__PART_u32(name) USERTRACE__PART_SCALAR(, name, 4)

#define USERTRACE__TYPE_x32 uint32_t
#define USERTRACE__NAME_x32 "x32"
#define USERTRACE__SIZE_x32 4
#define USERTRACE__PARAM_x32(name) uint32_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_x32(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_x32(name) USERTRACE__NAME_x32 " " #name
#define USERTRACE__PUSH_x32(name) USERTRACE__PUSH_SCALAR(, name, 4)
#define USERTRACE__PART_x32(name) USERTRACE__PART_SCALAR(, name, 4)

#define USERTRACE__TYPE_s32 int32_t
#define USERTRACE__NAME_s32 "s32"
#define USERTRACE__SIZE_s32 4
#define USERTRACE__PARAM_s32(name) int32_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_s32(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_s32(name) USERTRACE__NAME_s32 " " #name
#define USERTRACE__PUSH_s32(name) USERTRACE__PUSH_SCALAR(usertrace__s32, name, 4)
#define USERTRACE__PART_s32(name) USERTRACE__PART_SCALAR(usertrace__s32, name, 4)

#define USERTRACE__TYPE_u64 uint64_t
#define USERTRACE__NAME_u64 "u64"
#define USERTRACE__SIZE_u64 8
#define USERTRACE__PARAM_u64(name) uint64_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_u64(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_u64(name) USERTRACE__NAME_u64 " " #name
#define USERTRACE__PUSH_u64(name) USERTRACE__PUSH_SCALAR(, name, 8)
#define USERTRACE__PART_u64(name) USERTRACE__PART_SCALAR(, name, 8)

#define USERTRACE__TYPE_x64 uint64_t
#define USERTRACE__NAME_x64 "x64"
#define USERTRACE__SIZE_x64 8
#define USERTRACE__PARAM_x64(name) uint64_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_x64(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_x64(name) USERTRACE__NAME_x64 " " #name
#define USERTRACE__PUSH_x64(name) USERTRACE__PUSH_SCALAR(, name, 8)
#define USERTRACE__PART_x64(name) USERTRACE__PART_SCALAR(, name, 8)

#define USERTRACE__TYPE_s64 int64_t
#define USERTRACE__NAME_s64 "s64"
#define USERTRACE__SIZE_s64 8
#define USERTRACE__PARAM_s64(name) int64_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_s64(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_s64(name) USERTRACE__NAME_s64 " " #name
#define USERTRACE__PUSH_s64(name) USERTRACE__PUSH_SCALAR(usertrace__s64, name, 8)
#define USERTRACE__PART_s64(name) USERTRACE__PART_SCALAR(usertrace__s64, name, 8)

#define USERTRACE__TYPE_u16be uint16_t
#define USERTRACE__NAME_u16be "u16be"
#define USERTRACE__SIZE_u16be 2
#define USERTRACE__PARAM_u16be(name) uint16_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_u16be(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_u16be(name) USERTRACE__NAME_u16be " " #name
#define USERTRACE__PUSH_u16be(name) USERTRACE__PUSH_SCALAR(usertrace__u16be, name, 2)
#define USERTRACE__PART_u16be(name) USERTRACE__PART_SCALAR(usertrace__u16be, name, 2)

#define USERTRACE__TYPE_x16be uint16_t
#define USERTRACE__NAME_x16be "x16be"
#define USERTRACE__SIZE_x16be 2
#define USERTRACE__PARAM_x16be(name) uint16_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_x16be(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_x16be(name) USERTRACE__NAME_x16be " " #name
#define USERTRACE__PUSH_x16be(name) USERTRACE__PUSH_SCALAR(usertrace__u16be, name, 2)
#define USERTRACE__PART_x16be(name) USERTRACE__PART_SCALAR(usertrace__u16be, name, 2)

#define USERTRACE__TYPE_s16be int16_t
#define USERTRACE__NAME_s16be "s16be"
#define USERTRACE__SIZE_s16be 2
#define USERTRACE__PARAM_s16be(name) int16_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_s16be(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_s16be(name) USERTRACE__NAME_s16be " " #name
#define USERTRACE__PUSH_s16be(name) USERTRACE__PUSH_SCALAR(usertrace__s16be, name, 2)
#define USERTRACE__PART_s16be(name) USERTRACE__PART_SCALAR(usertrace__s16be, name, 2)

#define USERTRACE__TYPE_u32be uint32_t
#define USERTRACE__NAME_u32be "u32be"
#define USERTRACE__SIZE_u32be 4
#define USERTRACE__PARAM_u32be(name) uint32_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_u32be(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_u32be(name) USERTRACE__NAME_u32be " " #name
#define USERTRACE__PUSH_u32be(name) USERTRACE__PUSH_SCALAR(usertrace__u32be, name, 4)
#define USERTRACE__PART_u32be(name) USERTRACE__PART_SCALAR(usertrace__u32be, name, 4)

#define USERTRACE__TYPE_x32be uint32_t
#define USERTRACE__NAME_x32be "x32be"
#define USERTRACE__SIZE_x32be 4
#define USERTRACE__PARAM_x32be(name) uint32_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_x32be(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_x32be(name) USERTRACE__NAME_x32be " " #name
#define USERTRACE__PUSH_x32be(name) USERTRACE__PUSH_SCALAR(usertrace__u32be, name, 4)
#define USERTRACE__PART_x32be(name) USERTRACE__PART_SCALAR(usertrace__u32be, name, 4)

#define USERTRACE__TYPE_s32be int32_t
#define USERTRACE__NAME_s32be "s32be"
#define USERTRACE__SIZE_s32be 4
#define USERTRACE__PARAM_s32be(name) int32_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_s32be(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_s32be(name) USERTRACE__NAME_s32be " " #name
#define USERTRACE__PUSH_s32be(name) USERTRACE__PUSH_SCALAR(usertrace__s32be, name, 4)
#define USERTRACE__PART_s32be(name) USERTRACE__PART_SCALAR(usertrace__s32be, name, 4)

#define USERTRACE__TYPE_u64be uint64_t
#define USERTRACE__NAME_u64be "u64be"
#define USERTRACE__SIZE_u64be 8
#define USERTRACE__PARAM_u64be(name) uint64_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_u64be(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_u64be(name) USERTRACE__NAME_u64be " " #name
#define USERTRACE__PUSH_u64be(name) USERTRACE__PUSH_SCALAR(usertrace__u64be, name, 8)
#define USERTRACE__PART_u64be(name) USERTRACE__PART_SCALAR(usertrace__u64be, name, 8)

#define USERTRACE__TYPE_x64be uint64_t
#define USERTRACE__NAME_x64be "x64be"
#define USERTRACE__SIZE_x64be 8
#define USERTRACE__PARAM_x64be(name) uint64_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_x64be(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_x64be(name) USERTRACE__NAME_x64be " " #name
#define USERTRACE__PUSH_x64be(name) USERTRACE__PUSH_SCALAR(usertrace__u64be, name, 8)
#define USERTRACE__PART_x64be(name) USERTRACE__PART_SCALAR(usertrace__u64be, name, 8)

#define USERTRACE__TYPE_s64be int64_t
#define USERTRACE__NAME_s64be "s64be"
#define USERTRACE__SIZE_s64be 8
#define USERTRACE__PARAM_s64be(name) int64_t USERTRACE__VALUE(name)
#define USERTRACE__ARG_s64be(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_s64be(name) USERTRACE__NAME_s64be " " #name
#define USERTRACE__PUSH_s64be(name) USERTRACE__PUSH_SCALAR(usertrace__s64be, name, 8)
#define USERTRACE__PART_s64be(name) USERTRACE__PART_SCALAR(usertrace__s64be, name, 8)

#define USERTRACE__TYPE_f32 float
#define USERTRACE__NAME_f32 "f32"
#define USERTRACE__SIZE_f32 4
#define USERTRACE__PARAM_f32(name) float USERTRACE__VALUE(name)
#define USERTRACE__ARG_f32(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_f32(name) USERTRACE__NAME_f32 " " #name
#define USERTRACE__PUSH_f32(name) USERTRACE__PUSH_SCALAR(usertrace__f32, name, 4)
#define USERTRACE__PART_f32(name) USERTRACE__PART_SCALAR(usertrace__f32, name, 4)

#define USERTRACE__TYPE_f64 double
#define USERTRACE__NAME_f64 "f64"
#define USERTRACE__SIZE_f64 8
#define USERTRACE__PARAM_f64(name) double USERTRACE__VALUE(name)
#define USERTRACE__ARG_f64(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_f64(name) USERTRACE__NAME_f64 " " #name
#define USERTRACE__PUSH_f64(name) USERTRACE__PUSH_SCALAR(usertrace__f64, name, 8)
#define USERTRACE__PART_f64(name) USERTRACE__PART_SCALAR(usertrace__f64, name, 8)

#define USERTRACE__TYPE_bool bool
#define USERTRACE__NAME_bool "bool"
#define USERTRACE__SIZE_bool 1
#define USERTRACE__PARAM_bool(name) bool USERTRACE__VALUE(name)
#define USERTRACE__ARG_bool(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_bool(name) USERTRACE__NAME_bool " " #name
#define USERTRACE__PUSH_bool(name) USERTRACE__PUSH_SCALAR(usertrace__bool, name, 1)
#define USERTRACE__PART_bool(name) USERTRACE__PART_SCALAR(usertrace__bool, name, 1)

#define USERTRACE__TYPE__Bool bool
#define USERTRACE__NAME__Bool "bool"
#define USERTRACE__SIZE__Bool 1
#define USERTRACE__PARAM__Bool(name) bool USERTRACE__VALUE(name)
#define USERTRACE__ARG__Bool(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE__Bool(name) USERTRACE__NAME__Bool " " #name
#define USERTRACE__PUSH__Bool(name) USERTRACE__PUSH_SCALAR(usertrace__bool, name, 1)
#define USERTRACE__PART__Bool(name) USERTRACE__PART_SCALAR(usertrace__bool, name, 1)

#define USERTRACE__TYPE_ptr const void *
#define USERTRACE__NAME_ptr "x64"
#define USERTRACE__SIZE_ptr 8
#define USERTRACE__PARAM_ptr(name) const void *USERTRACE__VALUE(name)
#define USERTRACE__ARG_ptr(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_ptr(name) USERTRACE__NAME_ptr " " #name
#define USERTRACE__PUSH_ptr(name) USERTRACE__PUSH_SCALAR(usertrace__ptr, name, 8)
#define USERTRACE__PART_ptr(name) USERTRACE__PART_SCALAR(usertrace__ptr, name, 8)

/* (enum, u8, NAME, "LABEL=1,LABEL=2..5") */
#define USERTRACE__SIZE_enum 0
#define USERTRACE__PARAM_enum(type, name, labels) USERTRACE__PARAM_##type(name)
#define USERTRACE__ARG_enum(type, name, labels) USERTRACE__ARG_##type(name)
#define USERTRACE__LINE_enum(type, name, labels) USERTRACE__NAME_##type "{" labels "} " #name
#define USERTRACE__PUSH_enum(type, name, labels)
#define USERTRACE__PART_enum(type, name, labels) USERTRACE__PART_##type(name)

/* (array, u8, NAME, 6): a pointer to that number of elements. */
#define USERTRACE__SIZE_array 0
#define USERTRACE__PARAM_array(type, name, count) \
	const USERTRACE__TYPE_##type *USERTRACE__VALUE(name)
#define USERTRACE__ARG_array(type, name, count) USERTRACE__VALUE(name)
#define USERTRACE__LINE_array(type, name, count) \
	USERTRACE__NAME_##type "[" USERTRACE__TEXT(count) "] " #name
#define USERTRACE__PUSH_array(type, name, count)
#define USERTRACE__PART_array(type, name, count) \
	usertrace__bytes(&usertrace__payload, USERTRACE__VALUE(name), \
			 (count) * sizeof(*USERTRACE__VALUE(name)));

/* (sequence, u8, NAME): a pointer, and the number of elements. */
#define USERTRACE__SIZE_sequence 0
#define USERTRACE__PARAM_sequence(type, name) \
	const USERTRACE__TYPE_##type *USERTRACE__VALUE(name), size_t USERTRACE__LENGTH(name)
#define USERTRACE__ARG_sequence(type, name) USERTRACE__VALUE(name), USERTRACE__LENGTH(name)
#define USERTRACE__LINE_sequence(type, name) USERTRACE__NAME_##type "[] " #name
#define USERTRACE__PUSH_sequence(type, name)
#define USERTRACE__PART_sequence(type, name) \
	usertrace__sequence(&usertrace__payload, USERTRACE__VALUE(name), USERTRACE__LENGTH(name), \
			    sizeof(*USERTRACE__VALUE(name)));

/* (text, NAME): a pointer, and the number of bytes of UTF-8. */
#define USERTRACE__SIZE_text 0
#define USERTRACE__PARAM_text(name) \
	const char *USERTRACE__VALUE(name), size_t USERTRACE__LENGTH(name)
#define USERTRACE__ARG_text(name) USERTRACE__VALUE(name), USERTRACE__LENGTH(name)
#define USERTRACE__LINE_text(name) "c8[] " #name
#define USERTRACE__PUSH_text(name)
#define USERTRACE__PART_text(name) \
	usertrace__sequence(&usertrace__payload, USERTRACE__VALUE(name), USERTRACE__LENGTH(name), 1);

/* (str, NAME): a text that ends with NUL; NULL is "(null)". */
#define USERTRACE__SIZE_str 0
#define USERTRACE__PARAM_str(name) const char *USERTRACE__VALUE(name)
#define USERTRACE__ARG_str(name) USERTRACE__VALUE(name)
#define USERTRACE__LINE_str(name) "str " #name
#define USERTRACE__PUSH_str(name)
#define USERTRACE__PART_str(name) usertrace__str(&usertrace__payload, USERTRACE__VALUE(name));

#define USERTRACE__TEXT(text) USERTRACE__TEXT_(text)
#define USERTRACE__TEXT_(text) #text

#endif

/* Names from before LTTng-UST 2.13 exist unless a program asks for newer ones only. */
#ifndef USERTRACE_LTTNG_UST_API_COMPAT_H
#define USERTRACE_LTTNG_UST_API_COMPAT_H

#ifndef LTTNG_UST_COMPAT_API_VERSION
#define LTTNG_UST_COMPAT_API_VERSION 0
#endif

#define LTTNG_UST_COMPAT_API(version) (LTTNG_UST_COMPAT_API_VERSION <= (version))

#endif

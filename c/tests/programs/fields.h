/* Events that two files declare. */
#include <usertrace.h>

USERTRACE_EVENT(test, shared, DEBUG_FUNCTION, (s32, n));
USERTRACE_EVENT0(test, nothing, WARNING);

#ifdef __cplusplus
extern "C"
#endif
void other_file(void);

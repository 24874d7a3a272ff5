/* A tool that receives NVTX ranges, like a profiler; NVTX loads it by NVTX_INJECTION64_PATH. It
 * writes each range as a line to the file that FAKE_NVTX_LOG names, indented below its outer range;
 * and "end without a beginning" for an unmatched end. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local int depth;
static FILE *file;

static int NVTX_API push(const char *name)
{
    fprintf(file, "%*s%s\n", 2 * depth, "", name);
    fflush(file);
    return depth++;
}

static int NVTX_API pop(void)
{
    if (depth == 0) {
        fputs("end without a beginning\n", file);
        return NVTX_NO_PUSH_POP_TRACKING;
    }
    return --depth;
}

__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    const char *path = getenv("FAKE_NVTX_LOG");
    NvtxFunctionTable table = NULL;
    unsigned n = 0;
    file = path != NULL ? fopen(path, "w") : NULL;
    if (file == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &n) ||
        n <= NVTX_CBID_CORE_RangePop) {
        return 0;
    }
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}

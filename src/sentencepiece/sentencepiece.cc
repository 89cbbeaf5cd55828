/* sentencepiece.cc - the SentencePiece plug-in: the library behind a C interface.
 *
 * No exception leaves this file: the program is C.
 */
#include "io/text/sentencepiece_plugin.h"

#include "plimsoll.h"

#include <cstdio>
#include <memory>
#include <sentencepiece_processor.h>
#include <string>
#include <vector>

using sentencepiece::SentencePieceProcessor;

static const SentencePieceProcessor *of(const void *model)
{
    return static_cast<const SentencePieceProcessor *>(model);
}

static const char *open_model(const char *bytes, size_t n, void **model)
{
    static thread_local char why[256];
    try {
        std::unique_ptr<SentencePieceProcessor> p(new SentencePieceProcessor);
        auto status = p->LoadFromSerializedProto(std::string(bytes, n));
        if (status.ok()) {
            *model = p.release();
            return nullptr;
        }
        snprintf(why, sizeof why, "%s", status.ToString().c_str());
    } catch (...) {
        snprintf(why, sizeof why, "memory has run out");
    }
    return why;
}

static void close_model(void *model)
{
    delete static_cast<SentencePieceProcessor *>(model);
}

static int32_t count_of(const void *model)
{
    return of(model)->GetPieceSize();
}

static int32_t end_of(const void *model)
{
    return of(model)->eos_id();
}

static int32_t pad_of(const void *model)
{
    return of(model)->pad_id();
}

static int64_t encode(const void *model, const char *text, size_t n, int32_t *to, int64_t cap)
{
    try {
        std::vector<int> ids;
        if (!of(model)->Encode(std::string(text, n), &ids).ok()) return -1;
        for (size_t i = 0; i < ids.size() && static_cast<int64_t>(i) < cap; i++) to[i] = ids[i];
        return static_cast<int64_t>(ids.size());
    } catch (...) {
        return -1;
    }
}

extern "C" __attribute__((visibility("default"))) const pl_sentencepiece_plugin pl_sentencepiece;
const pl_sentencepiece_plugin pl_sentencepiece = {
    PL_SENTENCEPIECE_ABI, PL_VERSION_STRING, open_model, close_model, count_of, end_of, pad_of, encode,
};

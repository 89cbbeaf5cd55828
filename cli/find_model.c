/* find_model.c - the configuration and the weights that a trained model consists of. */
#include "cli/ui.h"

#include <sys/stat.h>
#include <unistd.h>

bool cli_find_model(const char *named, const char *model, bool ema, char *config_path,
                    char *model_path, size_t cap)
{
    struct stat s;
    bool run = stat(named, &s) == 0 && S_ISDIR(s.st_mode);
    if (model && !model[0]) {
        cli_error("--model needs a file name");
        return false;
    }
    if (model && ema) {
        cli_error(
            "--ema and --model exclude each other: --ema takes the averaged weights of a run folder");
        return false;
    }
    if (!run && ema) {
        cli_error("--ema needs a run folder; %s is not a run folder", named);
        return false;
    }
    if (!run && !model) {
        cli_error("no weights given: add --model FILE, or name a run folder instead of %s", named);
        return false;
    }
    snprintf(config_path, cap, "%s%s", named, run ? "/config.yaml" : "");
    if (model)
        snprintf(model_path, cap, "%s", model);
    else
        snprintf(model_path, cap, "%s/%s", named,
                 ema ? "model_ema.safetensors" : "model.safetensors");
    if (!run || model || access(model_path, R_OK) == 0) return true;
    if (ema)
        cli_error("there is no %s: only a finished run with ema.decay has it", model_path);
    else
        cli_error(
            "there is no %s: the run is not finished; --model takes the model of a checkpoint",
            model_path);
    return false;
}

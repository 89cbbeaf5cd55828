/* init_rules.c - initial values as torch.nn.init defines them, converted to a uniform, normal or
 * constant.
 *
 *   xavier   normal std = gain*sqrt(2/(in+out)), uniform bound = sqrt(3)*std
 *   kaiming  normal std = gain/sqrt(fan),        uniform bound = sqrt(3)*std
 */
#include "nn/nn.h"

#include <math.h>
#include <string.h>

pl_nn_init pl_nn_constant(double value)
{
    return (pl_nn_init){PL_NN_INIT_CONSTANT, value, 0, PL_FAN_IN};
}

pl_nn_init pl_nn_normal(double mean, double std)
{
    return (pl_nn_init){PL_NN_INIT_NORMAL, mean, std, PL_FAN_IN};
}

pl_nn_init pl_nn_trunc_normal(double mean, double std, double lo, double hi)
{
    return (pl_nn_init){PL_NN_INIT_TRUNC_NORMAL, mean, std, PL_FAN_IN, lo, hi};
}

pl_nn_init pl_nn_uniform(double lo, double hi)
{
    return (pl_nn_init){PL_NN_INIT_UNIFORM, lo, hi, PL_FAN_IN};
}

pl_nn_init pl_nn_xavier_normal(double gain)
{
    return (pl_nn_init){PL_NN_INIT_XAVIER_NORMAL, gain, 0, PL_FAN_IN};
}

pl_nn_init pl_nn_xavier_uniform(double gain)
{
    return (pl_nn_init){PL_NN_INIT_XAVIER_UNIFORM, gain, 0, PL_FAN_IN};
}

pl_nn_init pl_nn_kaiming_normal(pl_nn_fan fan, double gain)
{
    return (pl_nn_init){PL_NN_INIT_KAIMING_NORMAL, gain, 0, fan};
}

pl_nn_init pl_nn_kaiming_uniform(pl_nn_fan fan, double gain)
{
    return (pl_nn_init){PL_NN_INIT_KAIMING_UNIFORM, gain, 0, fan};
}

double pl_nn_gain(const char *nonlinearity, double a)
{
    if (!strcmp(nonlinearity, "relu")) return sqrt(2);
    if (!strcmp(nonlinearity, "leaky_relu")) return sqrt(2 / (1 + a * a));
    if (!strcmp(nonlinearity, "tanh")) return 5.0 / 3;
    if (!strcmp(nonlinearity, "selu")) return 0.75;
    return 1;
}

static pl_init normal(double std)
{
    return (pl_init){PL_INIT_NORMAL, 0, std};
}

static pl_init uniform(double bound)
{
    return (pl_init){PL_INIT_UNIFORM, -bound, bound};
}

pl_init pl_nn_init_of(pl_nn_init i, double fan_in, double fan_out)
{
    double fan = i.fan == PL_FAN_OUT ? fan_out : fan_in;
    double xavier = i.a * sqrt(2 / (fan_in + fan_out)), kaiming = i.a / sqrt(fan);
    switch (i.kind) {
    case PL_NN_INIT_CONSTANT: return (pl_init){PL_INIT_CONST, i.a, 0};
    case PL_NN_INIT_NORMAL: return (pl_init){PL_INIT_NORMAL, i.a, i.b};
    case PL_NN_INIT_UNIFORM: return (pl_init){PL_INIT_UNIFORM, i.a, i.b};
    case PL_NN_INIT_XAVIER_NORMAL: return normal(xavier);
    case PL_NN_INIT_XAVIER_UNIFORM: return uniform(sqrt(3) * xavier);
    case PL_NN_INIT_KAIMING_NORMAL: return normal(kaiming);
    case PL_NN_INIT_KAIMING_UNIFORM: return uniform(sqrt(3) * kaiming);
    case PL_NN_INIT_TRUNC_NORMAL:
        return (pl_init){.kind = PL_INIT_TRUNC_NORMAL, .a = i.a, .b = i.b, .lo = i.lo, .hi = i.hi};
    case PL_NN_INIT_DEFAULT: break;
    }
    return uniform(1 / sqrt(fan_in));
}

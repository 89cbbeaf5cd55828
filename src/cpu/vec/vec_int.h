/* vec_int.h - the integer functions of one class. Included once by each of
 * vec_{i32,i64,u8}.isa.c, which defines T (the element), U (the unsigned type that arithmetic
 * wraps in) and TABLE.
 */
#include "cpu/vec/vec_map.h"

static inline bool negative(int64_t x)
{
    return x < 0;
}

static inline bool minus_one(int64_t y)
{
    return y == -1;
}

/* Rounds towards zero; the smallest integer has no negative, so the result wraps. */
static inline T div_one(T x, T y)
{
    if (y == 0) return 0;
    if (minus_one(y)) return (T)(U)((U)0 - (U)x);
    return (T)(x / y);
}

static inline T mod_one(T x, T y)
{
    if (y == 0 || minus_one(y)) return 0;
    T r = (T)(x % y);
    return (T)(((r != 0) & (negative(r) != negative(y))) ? r + y : r);
}

MAP1(neg, (U)0 - (U)x)
MAP1(abs_, negative(x) ? (U)0 - (U)x : (U)x)
MAP1(sign, (x > 0) - negative(x))
MAP1(same, x)
MAP1(square, (U)x *(U)x)
MAP1(relu, x > 0 ? x : 0)
MAP2(add, (U)x + (U)y)
MAP2(sub, (U)x - (U)y)
MAP2(mul, (U)x *(U)y)
MAP2(div_, div_one(x, y))
MAP2(mod, mod_one(x, y))
MAP2(max_, x > y ? x : y)
MAP2(min_, x < y ? x : y)
COMPARE_LOOPS
SELECT_LOOPS
#ifdef LOGICAL
MAP1(not_, x == 0)
MAP2(and_, (x != 0) & (y != 0))
MAP2(or_, (x != 0) | (y != 0))
MAP2(xor_, (x != 0) ^ (y != 0))
#endif

extern const pl_vec_map PL_VEC_NAME(TABLE);
const pl_vec_map PL_VEC_NAME(TABLE) = {{
    ROW1(NEG, neg),       ROW1(ABS, abs_),      ROW1(SIGN, sign), ROW1(FLOOR, same),
    ROW1(ROUND, same),    ROW1(SQUARE, square), ROW1(RELU, relu),
#ifdef LOGICAL
    ROW1(NOT, not_),      ROW2(AND, and_),      ROW2(OR, or_),    ROW2(XOR, xor_),
#endif
    ROW2(ADD, add),       ROW2(SUB, sub),       ROW2(MUL, mul),   ROW2(DIV, div_),
    ROW2(MAX, max_),      ROW2(MIN, min_),      ROW2(MOD, mod),   COMPARE_ROWS,
    ROW3(SELECT, select),
}};

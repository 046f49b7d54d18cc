/* Products whose first groups make the rows: KnLedLinear. linear_led.kn has the same entries, arithmetic and bits. */

namespace linear {

template <template <int> class F, int TILES, int COLUMNS>
__device__ __forceinline__ void led(const KnLedLinear &p) {
    __shared__ __align__(128) u8 shared[Narrow<F, COLUMNS>::ALL_BYTES];
    static_assert(sizeof(shared) >= LED_SHARED * sizeof(float), "makers have room");
    const u32 makers = p.lead ? p.makers : 0u;
    if (blockIdx.x < makers) {
        led_make(p, blockIdx.x, (float *)shared);
        return;
    }
    narrow_group<F, TILES, COLUMNS>(p.product, (int)(blockIdx.x - makers), shared, [&] {
        let_next_begin();
        /* Beside another product, that one has waited for what is in front of it before it counted the last maker. */
        if (!(p.product.order & ORDER_BESIDE)) wait_for_launches();
        kn_await(p.ready, p.makers);
    });
}

}  // namespace linear

#define KN_LED_ENTRY(entry, residents, ...) \
    extern "C" __global__ void __launch_bounds__(256, residents) entry(const __grid_constant__ KnLedLinear p) { \
        linear::led<__VA_ARGS__>(p); \
    }
#define KN_LED(name, kind) \
    KN_LED_ENTRY(linear_##name##_r1_led, 3, linear::kind, 1, 1) \
    KN_LED_ENTRY(linear_##name##_r8_led, 3, linear::kind, 1, 8) \
    KN_LED_ENTRY(linear_##name##_r16_led, 2, linear::kind, 2, 8)

KN_LED(q8_0, Q8_0)
KN_LED(q4_0, Q4_0)
KN_LED(q5_0, Q5_0)
KN_LED(iq4_nl, Iq4Nl)
KN_LED(mxfp4, Mxfp4)
KN_LED(q4_1, Q4_1)
KN_LED(q5_1, Q5_1)
KN_LED(q4_k, Q4K)
KN_LED(q5_k, Q5K)
KN_LED(q6_k, Q6K)

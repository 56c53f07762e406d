// What C++ has no words for, as PTX. tests/functional/gpu_cpu has the same for a CPU.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u64 Barrier;
struct bf16 { unsigned short bits; };
constexpr int smaller(int a, int b) { return a < b ? a : b; }
#define DEV __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define UNROLL_2 _Pragma("unroll 2")
#define NO_UNROLL _Pragma("unroll 1")
#define KERNEL extern "C" __global__ void CLUSTER __launch_bounds__(32 * R, 1)

template <class S> DEV S& shared() {
  extern __shared__ __align__(128) unsigned char raw[];
  return *(S*)raw;
}
DEV int thread_id() { return threadIdx.x; }
DEV int cluster_rank() { return blockIdx.x % C; }
DEV int cluster_id() { return blockIdx.x / C; }
DEV void block_sync() { __syncthreads(); }
DEV void warp_sync() { __syncwarp(); }
DEV float shuffle(float v, int from) { return __shfl_sync(~0u, v, from); }
DEV float warp_sum(float v) {
  for (int i = 16; i; i /= 2) v += __shfl_xor_sync(~0u, v, i);
  return v;
}

// A cluster of one block is compiled for 8.0, where there are no others.
#if __CUDA_ARCH__ >= 900
#define CLUSTER __cluster_dims__(C, 1, 1)
DEV void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
// Addresses in the shared memory of this block, and of another one of the cluster.
DEV u32 local(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEV u32 remote(const void* p, int rank) {
  u32 r;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(local(p)), "r"(rank));
  return r;
}

// A barrier's phase ends when all bytes that are expected of it have arrived.
DEV void init(Barrier* b) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(local(b)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEV void expect(Barrier* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               ::"r"(local(b)), "r"(bytes) : "memory");
}
#define ASK(how) \
  asm volatile("{\n.reg .pred p;\n" \
               "mbarrier." how ".parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n" \
               "selp.u32 %0, 1, 0, p;\n}" : "=r"(r) : "r"(local(b)), "r"(parity) : "memory")
DEV bool has_ended(Barrier* b, int parity, bool may_suspend) {
  u32 r;
  if (may_suspend) ASK("try_wait");
  else ASK("test_wait");
  return r;
}
// False after some seconds, so that no fault of a kernel hangs the GPU: the first question
// may suspend the thread for a while, and each of the others takes 20 cycles or more. To
// read a clock in place of counting is 15 more instructions of each wait.
DEV bool wait(Barrier* b, int parity) {
  if (has_ended(b, parity, true)) return true;
  NO_UNROLL for (u32 i = 1u << 28; i; --i) if (has_ended(b, parity, false)) return true;
  return false;
}
DEV void send(void* to, Barrier* b, int rank, float4 v) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], "
               "{%1, %2, %3, %4}, [%5];" ::"r"(remote(to, rank)), "f"(v.x), "f"(v.y),
               "f"(v.z), "f"(v.w), "r"(remote(b, rank)) : "memory");
}
#else
#define CLUSTER
// Threads of a warp tell each other what they have stored.
DEV void cluster_sync() { __syncthreads(); }
DEV void init(Barrier*) {}
DEV void expect(Barrier*, u32) {}
DEV bool wait(Barrier*, int) { __syncwarp(); return true; }
DEV void send(void* to, Barrier*, int, float4 v) { *(float4*)to = v; }
#endif

DEV float number_of_bits(u32 bits) { return __uint_as_float(bits); }
DEV float tf32(float v) {
  u32 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
  return __uint_as_float(r);
}
// Two numbers as bfloat16 in the bits of one.
DEV float pack(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return __uint_as_float(r);
}
DEV float rounded(float v) { return pack(0.f, v); }
DEV float number(float v) { return v; }
DEV bool number(bool v) { return v; }
DEV float number(bf16 v) { return __uint_as_float((u32)v.bits << 16); }
DEV void put(float* to, float v) { *to = v; }
DEV void put(bool* to, bool v) { *to = v; }
DEV void put(bf16* to, float v) { to->bits = __float_as_uint(pack(0.f, v)) >> 16; }

// c[16 x 8] += a[16 x k] b[k x 8], with k = 8 in TF32 and k = 16 in bfloat16.
#define MMA(shape) \
  asm volatile("mma.sync.aligned." shape " {%0, %1, %2, %3}, {%4, %5, %6, %7}, " \
      "{%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
      : "r"(__float_as_uint(a.x)), "r"(__float_as_uint(a.y)), \
        "r"(__float_as_uint(a.z)), "r"(__float_as_uint(a.w)), \
        "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)))
DEV void mma_tf32(float (&c)[4], float4 a, float b0, float b1) {
  MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
}
DEV void mma_bf16(float (&c)[4], float4 a, float b0, float b1) {
  MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
}

DEV float sigmoid(float v) { return __fdividef(1.f, 1.f + __expf(-v)); }
// exp(2 v) is to be finite. NaN stays NaN.
DEV float tanh_(float v) {
  v = v > 15.f ? 15.f : v < -15.f ? -15.f : v;
  return 1.f - __fdividef(2.f, __expf(2.f * v) + 1.f);
}

// gpu/source/device.cuh for a CPU: every thread of a cluster is a fiber. A fiber that
// waits gives way to the others.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#define DEV inline
#define UNROLL
#define UNROLL_2
#define NO_UNROLL
#define KERNEL static void
#define __restrict__
constexpr int smaller(int a, int b) { return a < b ? a : b; }
struct bf16 { unsigned short bits; };
struct alignas(16) float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// A phase ends with one arrival and all bytes that it tells of.
struct Barrier { int phase, arrivals, pending; };
// Bytes on the way to another block.
struct Message { float4* to; Barrier* bar; float4 value; };
struct Fiber { ucontext_t start; jmp_buf here; std::vector<char> stack; bool begun, done; };
// What the 32 lanes of a warp show each other.
struct Warp { float v[32][8]; int count; };
struct World {
  std::vector<Fiber> fibers;
  std::vector<std::vector<char>> memory;   // of each block
  std::vector<int> at_block_sync;
  std::vector<Warp> warps;
  std::vector<Message> sent;
  jmp_buf scheduler;
  int now = 0, cluster = 0, at_cluster_sync = 0;
  bool is_late = false;
};
static World W;
constexpr int THREADS = 32 * R;

inline void give_way() {
  if (!_setjmp(W.fibers[W.now].here)) _longjmp(W.scheduler, 1);
}
// Wait until n fibers have come here as often as this one.
inline void meet(int& count, int n) {
  int goal = (count / n + 1) * n;
  ++count;
  while (count < goal) give_way();
}
DEV int thread_id() { return W.now % THREADS; }
DEV int cluster_rank() { return W.now / THREADS; }
DEV int cluster_id() { return W.cluster; }
DEV void block_sync() { meet(W.at_block_sync[cluster_rank()], THREADS); }
DEV void cluster_sync() { meet(W.at_cluster_sync, THREADS * C); }
DEV Warp& my_warp() { return W.warps[W.now / 32]; }
DEV void warp_sync() { meet(my_warp().count, 32); }

DEV uintptr_t base(int rank) {
  return ((uintptr_t)W.memory[rank].data() + 127) & ~(uintptr_t)127;
}
template <class S> DEV S& shared() {
  auto& memory = W.memory[cluster_rank()];
  if (memory.empty()) {
    memory.resize(sizeof(S) + 128);
    memset(memory.data(), 0xff, memory.size());   // NaN
  }
  return *(S*)base(cluster_rank());
}
template <class P> DEV P* remote(P* p, int rank) {
  return (P*)((uintptr_t)p - base(cluster_rank()) + base(rank));
}
inline void settle(Barrier* b) {
  if (b->arrivals != 1 || b->pending != 0) return;
  ++b->phase;
  b->arrivals = 0;
}
DEV void init(Barrier* b) { *b = {0, 0, 0}; }
DEV void expect(Barrier* b, int bytes) {
  if (C == 1) return;
  if (b->arrivals) abort();   // twice in a phase
  b->pending += bytes;
  b->arrivals = 1;
  settle(b);
}
// False after many rounds in which nothing came.
DEV bool wait(Barrier* b, int parity) {
  if (C == 1) return warp_sync(), true;
  for (int i = 0; (b->phase & 1) == parity; ++i) {
    if (i == 20000) return false;
    give_way();
  }
  return true;
}
inline void deliver(const Message& m) {
  *m.to = m.value;
  m.bar->pending -= sizeof m.value;
  settle(m.bar);
}
DEV void send(void* to, Barrier* b, int rank, float4 v) {
  if (C == 1) return void(*(float4*)to = v);
  Message m = {(float4*)remote((char*)to, rank), remote(b, rank), v};
  if (W.is_late) W.sent.push_back(m);
  else deliver(m);
}
DEV float shuffle(float v, int from) {
  Warp& w = my_warp();
  w.v[W.now % 32][0] = v;
  warp_sync();
  float r = w.v[from][0];
  warp_sync();
  return r;
}
DEV float warp_sum(float v) {
  Warp& w = my_warp();
  w.v[W.now % 32][0] = v;
  warp_sync();
  float s = 0;
  for (int i = 0; i < 32; ++i) s += w.v[i][0];
  warp_sync();
  return s;
}

// Products are exact here, so that they can be compared with those of the scan.
DEV float tf32(float v) { return v; }
inline unsigned bits_of(float v) { unsigned u; memcpy(&u, &v, 4); return u; }
inline float of_bits(unsigned u) { float v; memcpy(&v, &u, 4); return v; }
inline unsigned narrow(float v) {   // to the nearest, and to even
  unsigned u = bits_of(v);
  return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
DEV float number_of_bits(unsigned u) { return of_bits(u); }
DEV float pack(float low, float high) { return of_bits(narrow(high) << 16 | narrow(low)); }
DEV float rounded(float v) { return of_bits(narrow(v) << 16); }
DEV float number(float v) { return v; }
DEV bool number(bool v) { return v; }
DEV float number(bf16 v) { return of_bits((unsigned)v.bits << 16); }
DEV void put(float* to, float v) { *to = v; }
DEV void put(bool* to, bool v) { *to = v; }
DEV void put(bf16* to, float v) { to->bits = narrow(v); }

// The lanes show each other their operands. `at(lane, register, half)` reads one of them.
template <int K, class At> inline void mma(float (&c)[4], float4 a, float b0, float b1, At at) {
  float in[6] = {a.x, a.y, a.z, a.w, b0, b1};
  memcpy(my_warp().v[W.now % 32], in, sizeof in);
  warp_sync();
  int lane = W.now % 32;
  for (int i = 0; i < 4; ++i) {
    int row = lane / 4 + 8 * (i / 2), col = 2 * (lane % 4) + i % 2;
    for (int k = 0; k < K; ++k) {
      int quarter = k % (K / 2) * 8 / K, half = k % (K / 8);
      c[i] += at(row % 8 * 4 + quarter, row / 8 + 2 * (k / (K / 2)), half) *
              at(col * 4 + quarter, 4 + k / (K / 2), half);
    }
  }
  warp_sync();
}
DEV void mma_tf32(float (&c)[4], float4 a, float b0, float b1) {
  auto at = [](int lane, int i, int) { return my_warp().v[lane][i]; };
  mma<8>(c, a, b0, b1, at);
}
DEV void mma_bf16(float (&c)[4], float4 a, float b0, float b1) {
  auto at = [](int lane, int i, int half) {
    unsigned u = bits_of(my_warp().v[lane][i]);
    return of_bits(half ? u & 0xffff0000u : u << 16);
  };
  mma<16>(c, a, b0, b1, at);
}
DEV float rsqrtf(float v) { return 1.f / std::sqrt(v); }
DEV float sigmoid(float v) { return 1.f / (1.f + std::exp(-v)); }
DEV float tanh_(float v) { return std::tanh(v); }

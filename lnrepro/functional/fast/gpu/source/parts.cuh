// What every generated kernel consists of: products, and sums over the units of a row.
//
// A cluster of C blocks has R rows of the batch and all H units: block b has the units
// b U, b U + 1, ... of every chunk (gate), warp r the row r, lane l the units l, l + 32,
// ... of the block. The last block has fewer units where C does not divide H. The
// generated source defines before this file: C, R, H, EXCHANGES.
constexpr int WARPS = R, U = (H + C - 1) / C, UP = (U + 3) / 4 * 4, NU = (UP + 31) / 32;
#define EACH UNROLL for (int n = 0; n < NU; ++n)
DEV constexpr int units_of(int b) { return smaller(U, H - b * U); }
static_assert(units_of(C - 1) > 0, "a block has no units");
// As those of XLA, they return NaN where either is NaN.
DEV float maximum(float a, float b) { return a > b || a != a ? a : b; }
DEV float minimum(float a, float b) { return a < b || a != a ? a : b; }
struct Thread {
  int tid, warp, lane, block;
  mutable float zero;   // NaN once a wait had no end: so is all that comes, and none is long
  DEV bool has(int n) const { return lane + 32 * n < units_of(block); }
  DEV bool lost() const { return zero != 0.f; }
  DEV void wait(Barrier* b, int parity) const {
    if (!lost() && !::wait(b, parity)) zero = number_of_bits(0x7fc00000u);
  }
};

// A product of GI chunks with a weight, GO chunks of which come out. The weight stays on
// chip, and what is the smaller travels between the blocks:
//   GI <= GO: all blocks get the whole input, and compute the columns of their units
//   GI > GO (SCATTER), as backward: a block multiplies its own units of the input for all
//     columns, and sends parts of the result to the blocks whose units they are
// A block that is alone in its cluster has both (LOCAL), and nothing travels.
// WM x WK warps share the work: WM parts of the columns, WK of the sum. A warp's part of
// the sum is PW groups of 16 terms, whose weights lie
//   KR in registers
//   KS in shared memory
//   KL in the memory of the thread, in the order of use: they are read through the L2
//     cache in every step
// TRANSPOSED: whether the weight is [GO H, GI H]. BUFFERS of what arrives. fit.py chooses
// these numbers.
template <class W, bool TRANSPOSED, int GI, int GO, int BUFFERS, int WM, int KR, int KS,
          int KL>
struct Product {
  static constexpr bool SCATTER = C > 1 && GI > GO, LOCAL = SCATTER || C == 1;
  static constexpr int COLS = (SCATTER ? C : 1) * GO * UP, K = (LOCAL ? 1 : C) * GI * UP;
  static constexpr int MT = (COLS + 15) / 16, MW = (MT + WM - 1) / WM, WK = WARPS / WM;
  static constexpr int PW = KR + KS + KL;
  static_assert(PW == (K + 16 * WK - 1) / (16 * WK), "groups are left out");
  // Fragments of a group: one of bfloat16, which multiplies 16 terms, or two of TF32.
  static constexpr int S = sizeof(W) == 2 ? 1 : 2, F = S * MW;
  // Rows start in other banks of shared memory.
  static constexpr int LDI = (PW * WK * 16 + 31) / 32 * 32 + 16;
  static constexpr int LDP = (MT * 16 + 31) / 32 * 32 + 4;
  static constexpr int PARTS = SCATTER ? BUFFERS : 1, INS = SCATTER ? 1 : BUFFERS;
  static constexpr int ARRIVES = R * C * (SCATTER ? GO : GI) * UP * 4;   // bytes a step
  typedef float4 Weights[KR > 0 ? KR : 1][F];
  typedef float4 Local[KL > 0 ? KL : 1][F];

  float4 w[KS > 0 ? KS * F * WARPS : 1][32];
  alignas(16) float in[INS][R][LDI];
  alignas(16) float p[WK][R][LDP];
  alignas(16) float part[PARTS][SCATTER ? C : 1][R][SCATTER ? GO * UP : 4];
  alignas(8) Barrier bar[BUFFERS];

  // Of a column and a term, in the order in which the input and the result are here.
  static DEV float weight(const W* w, int block, int col, int k) {
    int cb = SCATTER ? col / (GO * UP) : block, go = col / UP % GO, u = col % UP;
    int kb = SCATTER ? block : k / (GI * UP), gi = k / UP % GI, ku = k % UP;
    if (col >= COLS || k >= K || u >= units_of(cb) || ku >= units_of(kb)) return 0.f;
    size_t in = gi * H + kb * U + ku, out = go * H + cb * U + u;
    return number(w[TRANSPOSED ? out * (GI * H) + in : in * (GO * H) + out]);
  }

  // Four numbers of fragment f of group p: rows col and col + 8 of two terms, or of four.
  static DEV float4 fragment(const W* w, const Thread& me, int p, int f) {
    int wm = me.warp % WM, wk = me.warp / WM, s = f / MW;
    int col = (wm * MW + f % MW) * 16 + me.lane / 4;
    int k = (wk * PW + p) * 16 + 4 * (me.lane % 4) + 2 * s;
    float v[2][4];
    UNROLL for (int i = 0; i < 2; ++i) UNROLL for (int j = 0; j < 6 - 2 * S; ++j)
      v[i][j] = weight(w, me.block, col + 8 * i, k + j);
    if (S == 1) return make_float4(pack(v[0][0], v[0][1]), pack(v[1][0], v[1][1]),
                                   pack(v[0][2], v[0][3]), pack(v[1][2], v[1][3]));
    return make_float4(tf32(v[0][0]), tf32(v[1][0]), tf32(v[0][1]), tf32(v[1][1]));
  }

  DEV float4* in_shared(const Thread& me, int p, int f) {
    return &w[((p - KR) * F + f) * WARPS + me.warp][me.lane];
  }

  DEV void start(Weights& wr, Local& wl, const W* source, const Thread& me) {
    UNROLL for (int p = 0; p < KR; ++p) UNROLL for (int f = 0; f < F; ++f)
      wr[p][f] = fragment(source, me, p, f);
    NO_UNROLL for (int p = 0; p < KL; ++p) UNROLL for (int f = 0; f < F; ++f)
      wl[p][f] = fragment(source, me, KR + KS + p, f);
    for (int p = KR; p < KR + KS; ++p) for (int f = 0; f < F; ++f)
      *in_shared(me, p, f) = fragment(source, me, p, f);
    for (int i = me.tid; i < INS * R * LDI; i += WARPS * 32) (&in[0][0][0])[i] = 0.f;
    if (me.tid == 0) for (int i = 0; i < BUFFERS; ++i) init(&bar[i]);
  }

  DEV void expect_step(int t) { expect(&bar[t % BUFFERS], ARRIVES); }

  DEV void send(int t, int chunk, const float (&v)[NU], const Thread& me) {
    EACH {
      int u = me.lane + 32 * n, part = me.lane % 8;
      float a = me.has(n) ? S == 1 ? v[n] : tf32(v[n]) : 0.f;
      if (LOCAL) {
        if (u < UP) in[0][me.warp][chunk * UP + u] = a;
        continue;
      }
      // To all blocks: eight lanes have 16 bytes each for a block.
      float4 four = make_float4(shuffle(a, 4 * part), shuffle(a, 4 * part + 1),
                                shuffle(a, 4 * part + 2), shuffle(a, 4 * part + 3));
      if (4 * part + 32 * n >= UP) continue;
      int at = (me.block * GI + chunk) * UP + 32 * n + 4 * part;
      for (int to = me.lane / 8; to < C; to += 4)
        ::send(&in[t % INS][me.warp][at], &bar[t % BUFFERS], to, four);
    }
  }

  DEV void multiply(int t, const Weights& wr, const Local& wl, const Thread& me) {
    if (LOCAL) block_sync();
    else me.wait(&bar[t % BUFFERS], t / BUFFERS & 1);
    int wm = me.warp % WM, wk = me.warp / WM, g = me.lane / 4, t4 = me.lane % 4;
    constexpr int TILES = R / 8;   // of 8 rows
    float acc[TILES][MW][2][4] = {};
    const float* row = &in[t % INS][g][wk * PW * 16 + 4 * t4];
    // Add 16 terms. An mma waits for the one before it of its sum, so there are two sums.
    auto add = [&](int k, int m, float4 first, float4 second) {
      UNROLL for (int i = 0; i < TILES; ++i) {
        float4 b = *(const float4*)&row[i * 8 * LDI + k * 16];
        float (&sums)[2][4] = acc[i][m];
        if (S == 1) {
          mma_bf16(sums[k % 2], first, pack(b.x, b.y), pack(b.z, b.w));
        } else {
          mma_tf32(sums[0], first, b.x, b.y);
          mma_tf32(sums[1], second, b.z, b.w);
        }
      }
    };
    UNROLL for (int k = 0; k < KR; ++k) UNROLL for (int m = 0; m < MW; ++m)
      add(k, m, wr[k][m], wr[k][F - MW + m]);
    // Unrolled, these loops would read all weights at once, into registers that there are
    // not.
    UNROLL_2 for (int k = KR; k < KR + KS; ++k) UNROLL for (int m = 0; m < MW; ++m)
      add(k, m, *in_shared(me, k, m), *in_shared(me, k, F - MW + m));
    NO_UNROLL for (int k = 0; k < KL; ++k) UNROLL for (int m = 0; m < MW; ++m)
      add(KR + KS + k, m, wl[k][m], wl[k][F - MW + m]);
    UNROLL for (int i = 0; i < TILES; ++i) UNROLL for (int m = 0; m < MW; ++m)
      UNROLL for (int j = 0; j < 4; ++j) if (wm * MW + m < MT)
        p[wk][8 * i + 2 * t4 + j % 2][(wm * MW + m) * 16 + g + 8 * (j / 2)] =
            acc[i][m][0][j] + acc[i][m][1][j];
    block_sync();
    if (!SCATTER) return;
    for (int i = 4 * me.lane; i < COLS; i += 128) {
      float4 v = *(const float4*)&p[0][me.warp][i];
      UNROLL for (int k = 1; k < WK; ++k) {
        float4 o = *(const float4*)&p[k][me.warp][i];
        v = make_float4(v.x + o.x, v.y + o.y, v.z + o.z, v.w + o.w);
      }
      ::send(&part[t % PARTS][me.block][me.warp][i % (GO * UP)], &bar[t % BUFFERS],
            i / (GO * UP), v);
    }
    me.wait(&bar[t % BUFFERS], t / BUFFERS & 1);
  }

  DEV float result(int t, int chunk, int n, const Thread& me) const {
    float s = me.zero;
    int u = chunk * UP + me.lane + 32 * n;
    if (!me.has(n)) return s;
    if (SCATTER) UNROLL for (int b = 0; b < C; ++b) s += part[t % PARTS][b][me.warp][u];
    else UNROLL for (int k = 0; k < WK; ++k) s += p[k][me.warp][u];
    return s;
  }
};

// The slots that parts of sums are sent to. Each row has barriers of its own, so that a
// warp waits for what it reads alone.
struct Sums {
  alignas(16) float4 part[EXCHANGES > 0 ? EXCHANGES : 1][R][C];
  alignas(8) Barrier bar[EXCHANGES > 0 ? EXCHANGES : 1][R];
  DEV void start(const Thread& me) {
    if (me.lane == 0) for (int i = 0; i < EXCHANGES; ++i) init(&bar[i][me.warp]);
  }
  DEV void expect_step(const Thread& me) {
    if (me.lane || me.lost()) return;
    UNROLL for (int i = 0; i < EXCHANGES; ++i) expect(&bar[i][me.warp], C * sizeof(float4));
  }
  // To the same lane's block, from the first lanes of a warp.
  DEV void send_parts(int e, float4 v, const Thread& me) {
    if (me.lane < C) send(&part[e][me.warp][me.block], &bar[e][me.warp], me.lane, v);
  }
};

// Up to four sums over the units of a row, in one exchange.
template <int N>
DEV void send_sums(Sums& sm, int e, const float (&v)[N][NU], const Thread& me) {
  float s[4] = {};
  UNROLL for (int i = 0; i < N; ++i) {
    EACH s[i] += me.has(n) ? v[i][n] : 0.f;
    s[i] = warp_sum(s[i]);
  }
  sm.send_parts(e, make_float4(s[0], s[1], s[2], s[3]), me);
}
template <int N>
DEV void wait_sums(Sums& sm, int e, int phase, float (&s)[4], const Thread& me) {
  me.wait(&sm.bar[e][me.warp], phase);
  UNROLL for (int i = 0; i < N; ++i) s[i] = me.zero;
  UNROLL for (int b = 0; b < C; ++b)    // in the same order in all blocks
    UNROLL for (int i = 0; i < N; ++i) s[i] += (&sm.part[e][me.warp][b].x)[i];
  warp_sync();                          // all lanes have read before one sends again
}

// The sum of G values a unit and that of their squared deviations from the mean, in one
// exchange: blocks send the mean of their units and its squared deviations.
template <int G>
DEV void send_moments(Sums& sm, int e, const float (&v)[G][NU], const Thread& me) {
  // In one pass, as differences from one of the values. Elsewhere two passes are the rule,
  // since squares of large numbers lose what is small. Here the shift is a member of the
  // sum: the square of its distance to the mean is a part of q, so that no more than G U + 1
  // roundings of q are lost, however large the mean.
  float s = 0.f, q = 0.f, shift = shuffle(v[0][0], 0);
  UNROLL for (int i = 0; i < G; ++i) EACH {
    float d = me.has(n) ? v[i][n] - shift : 0.f;
    s += d, q += d * d;
  }
  s = warp_sum(s), q = warp_sum(q);
  float from = s / (G * units_of(me.block));
  sm.send_parts(e, make_float4(shift + from, maximum(q - s * from, 0.f), 0.f, 0.f), me);
}
template <int G>
DEV void wait_moments(Sums& sm, int e, int phase, float (&s)[4], const Thread& me) {
  me.wait(&sm.bar[e][me.warp], phase);
  const float4(&part)[C] = sm.part[e][me.warp];
  s[0] = s[1] = me.zero;
  UNROLL for (int b = 0; b < C; ++b) s[0] += part[b].x * (G * units_of(b));
  UNROLL for (int b = 0; b < C; ++b) {
    float d = part[b].x - s[0] / (G * H);
    s[1] += part[b].y + G * units_of(b) * d * d;
  }
  warp_sync();
}

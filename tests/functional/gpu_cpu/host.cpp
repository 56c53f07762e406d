// Runs a generated kernel on a CPU, cluster by cluster: g++ -DSOURCE='"kernel.cu"'.
#include <utility>

#include SOURCE

static void** arrays;  // What the kernel reads, and then what it writes.

template <class... P, std::size_t... I>
static void call(void (*kernel)(P...), std::index_sequence<I...>) {
  kernel((P)arrays[I]...);
}

template <class... P>
static void call(void (*kernel)(P...)) {
  call(kernel, std::index_sequence_for<P...>());
}

static void entry() {
  call(recurrence);
  W.fibers[W.now].done = true;
  _longjmp(W.scheduler, 1);
}

static void resume(int i) {
  if (_setjmp(W.scheduler)) return;
  W.now = i;
  Fiber& f = W.fibers[i];
  if (f.begun) _longjmp(f.here, 1);
  f.begun = true;
  setcontext(&f.start);
}

// seed: 0 runs threads in their order, and messages arrive at once. Any other finds races:
// warps and blocks run at other speeds, and messages arrive late and out of order.
// Returns 1 if the threads wait for each other.
extern "C" int run(void** all, int seed, int clusters) {
  arrays = all;
  std::mt19937 random(seed);
  W.is_late = seed;
  constexpr int N = THREADS * C;
  for (W.cluster = 0; W.cluster < clusters; ++W.cluster) {
    W.fibers.assign(N, {});
    W.memory.assign(C, {});
    W.at_block_sync.assign(C, 0);
    W.at_cluster_sync = 0;
    W.warps.assign(N / 32, {});
    std::vector<int> order(N), speed(N / 32);
    for (int i = 0; i < N; ++i) {
      order[i] = i;
      Fiber& f = W.fibers[i];
      f.stack.resize(64 << 10);
      getcontext(&f.start);
      f.start.uc_stack.ss_sp = f.stack.data();
      f.start.uc_stack.ss_size = f.stack.size();
      makecontext(&f.start, entry, 0);
    }
    for (long left = N, round = 0; left; ++round) {
      if (round > 10000000) return 1;
      if (seed) std::shuffle(order.begin(), order.end(), random);
      if (seed && round % 64 == 0) {
        for (int b = 0; b < C; ++b) {
          int of_block = 1 << random() % 7;
          for (int i = 0; i < R; ++i)
            speed[b * R + i] = std::max(1, of_block >> random() % 3);
        }
      }
      std::vector<Message> arriving, later;
      for (auto& m : W.sent) (random() % 3 ? arriving : later).push_back(m);
      std::shuffle(arriving.begin(), arriving.end(), random);
      W.sent = later;
      for (auto& m : arriving) deliver(m);
      left = 0;
      for (int i : order) {
        if (W.fibers[i].done) continue;
        bool is_slow = seed && (int)(random() % 64) >= speed[i / 32];
        if (!is_slow) resume(i);
        left += !W.fibers[i].done;
      }
    }
  }
  return 0;
}

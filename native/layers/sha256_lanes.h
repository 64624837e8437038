/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 of LANES buffers at once, compiled for the instructions TARGET. sha256_many.c includes it once per number
 * of lanes. */

typedef uint32_t NAMED(words) __attribute__((vector_size(4 * LANES)));
typedef unsigned char NAMED(bytes) __attribute__((vector_size(4 * LANES)));

/* Row i becomes column i, for the words of one block (16 lanes) or half a block (8 lanes) of each lane. */
TARGET static inline void NAMED(transpose)(NAMED(words) rows[LANES])
{
	for (unsigned step = 1; step < LANES; step *= 2) {
		NAMED(words) low = { 0 }, high = { 0 };

		for (unsigned k = 0; k < LANES; k++) {
			low[k] = k & step ? LANES + k - step : k;
			high[k] = k & step ? LANES + k : k + step;
		}
		for (unsigned i = 0; i < LANES; i++) {
			NAMED(words) a, b;

			if (i & step)
				continue;
			a = rows[i];
			b = rows[i | step];
			rows[i] = __builtin_shuffle(a, b, low);
			rows[i | step] = __builtin_shuffle(a, b, high);
		}
	}
}

#define ROTATED(x, n) ((x) >> (n) | (x) << (32 - (n)))

/* The words of the next block of each lane, in w[0] to w[15]. */
TARGET static inline void NAMED(load)(NAMED(words) w[16], const unsigned char *const data[LANES], size_t offset)
{
	NAMED(bytes) swap = { 0 };

	for (unsigned i = 0; i < sizeof(swap); i++)
		swap[i] = (unsigned char)(i ^ 3);
	for (unsigned part = 0; part < 16; part += LANES) {
		for (unsigned i = 0; i < LANES; i++) {
			NAMED(bytes) row;

			memcpy(&row, data[i] + offset + 4 * part, sizeof(row));
			w[part + i] = (NAMED(words))__builtin_shuffle(row, swap);
		}
		NAMED(transpose)(w + part);
	}
}

TARGET static void NAMED(compress)(uint32_t state[8][LANES], const unsigned char *const data[LANES], size_t blocks)
{
	NAMED(words) s[8], w[16];

	memcpy(s, state, sizeof(s));
	for (size_t block = 0; block < blocks; block++) {
		NAMED(words) a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];

		NAMED(load)(w, data, 64 * block);
#pragma GCC unroll 64
		for (unsigned t = 0; t < 64; t++) {
			NAMED(words) one, two, x;

			if (t >= 16) {
				x = w[(t - 15) % 16];
				one = ROTATED(x, 7) ^ ROTATED(x, 18) ^ x >> 3;
				x = w[(t - 2) % 16];
				two = ROTATED(x, 17) ^ ROTATED(x, 19) ^ x >> 10;
				w[t % 16] += one + w[(t - 7) % 16] + two;
			}
			one = h + (ROTATED(e, 6) ^ ROTATED(e, 11) ^ ROTATED(e, 25)) + (g ^ (e & (f ^ g))) + constants[t] +
			      w[t % 16];
			two = (ROTATED(a, 2) ^ ROTATED(a, 13) ^ ROTATED(a, 22)) + ((a & b) | (c & (a | b)));
			h = g;
			g = f;
			f = e;
			e = d + one;
			d = c;
			c = b;
			b = a;
			a = one + two;
		}
		s[0] += a;
		s[1] += b;
		s[2] += c;
		s[3] += d;
		s[4] += e;
		s[5] += f;
		s[6] += g;
		s[7] += h;
	}
	memcpy(state, s, sizeof(s));
}

#undef ROTATED

static void NAMED(hash)(struct sha256_one *all, size_t count)
{
	static const unsigned char nothing[64 * LONGEST_RUN];
	uint32_t state[8][LANES] __attribute__((aligned(64)));
	struct lane lanes[LANES] = { { .one = NULL } };
	const unsigned char *data[LANES];
	size_t next = 0;

	for (;;) {
		size_t active = 0, run = LONGEST_RUN;

		for (unsigned i = 0; i < LANES; i++) {
			struct lane *lane = &lanes[i];

			if (!lane->one && next < count) {
				lane_begin(lane, &all[next++]);
				for (unsigned j = 0; j < 8; j++)
					state[j][i] = initial[j];
			}
			data[i] = nothing;
			if (!lane->one)
				continue;
			active++;
			data[i] = lane->at;
			run = lane->blocks < run ? lane->blocks : run;
		}
		if (!active)
			return;
		if (active <= LANES / 4 && next == count) {
			/* The last and longest: most lanes would be empty. */
			for (unsigned i = 0; i < LANES; i++)
				if (lanes[i].one) {
					uint32_t alone[8];

					for (unsigned j = 0; j < 8; j++)
						alone[j] = state[j][i];
					finish_alone(&lanes[i], alone);
				}
			return;
		}
		NAMED(compress)(state, data, run);
		for (unsigned i = 0; i < LANES; i++) {
			struct lane *lane = &lanes[i];

			if (!lane->one)
				continue;
			lane->at += 64 * run;
			lane->blocks -= run;
			if (lane->blocks || lane_tail(lane))
				continue;
			for (unsigned j = 0; j < 8; j++)
				put_word(lane->one->digest + 4 * j, state[j][i]);
			lane->one = NULL;
		}
	}
}

/* A known truth: an XDP reflector that drops exactly every tenth test frame. */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct xdp_md {
	u32 data;
	u32 data_end;
};
enum { XDP_DROP = 1, XDP_PASS = 2, XDP_TX = 3 };

static u64 seen;

__attribute__((section("xdp"), used))
int reflect_nine_of_ten(struct xdp_md *context)
{
	u8 *frame = (u8 *)(long)context->data;
	u8 *end = (u8 *)(long)context->data_end;

	if (frame + 14 > end)
		return XDP_PASS;
	u16 type = frame[12] << 8 | frame[13];
	if (type != 0x1234 && type != 0x88f7)
		return XDP_PASS;
	if (__sync_fetch_and_add(&seen, 1) % 10 == 9)
		return XDP_DROP;
	for (int i = 0; i < 6; i++) {
		u8 swapped = frame[i];
		frame[i] = frame[6 + i];
		frame[6 + i] = swapped;
	}
	return XDP_TX;
}

char license_text[] __attribute__((section("license"), used)) = "GPL";

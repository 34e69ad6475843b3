/* XDP reflector: sends load and timestamp frames back to where they came from and passes all others to the kernel.
 *
 * Build:  clang -O2 -g -target bpf -c reflector.bpf.c -o reflector.bpf.o
 * Load:   ip link set dev IFACE xdp obj reflector.bpf.o sec xdp          (native; xdpgeneric where the driver has none)
 * Unload: ip link set dev IFACE xdp off                                  (xdpgeneric off)
 *
 * Needs no kernel headers, so that it builds in the smallest guest.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

/* The kernel's interface, include/uapi/linux/bpf.h. */
struct xdp_md {
	u32 data;
	u32 data_end;
};
enum { XDP_PASS = 2, XDP_TX = 3 };

struct ethernet_header {
	u8 destination[6];
	u8 source[6];
	u16 type; /* network byte order */
} __attribute__((packed));

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NETWORK_ORDER(x) ((u16)__builtin_bswap16(x))
#else
#define NETWORK_ORDER(x) ((u16)(x))
#endif

#define TYPE_LOAD NETWORK_ORDER(0x1234)
#define TYPE_TIMESTAMP NETWORK_ORDER(0x88f7)

__attribute__((section("xdp"), used))
int reflect(struct xdp_md *context)
{
	void *data = (void *)(long)context->data;
	void *end = (void *)(long)context->data_end;
	struct ethernet_header *ethernet = data;
	u8 address[6];

	if ((void *)(ethernet + 1) > end)
		return XDP_PASS;
	if (ethernet->type != TYPE_LOAD && ethernet->type != TYPE_TIMESTAMP)
		return XDP_PASS;
	__builtin_memcpy(address, ethernet->destination, 6);
	__builtin_memcpy(ethernet->destination, ethernet->source, 6);
	__builtin_memcpy(ethernet->source, address, 6);
	return XDP_TX;
}

/* The kernel asks for it only of programs that call restricted helpers, which this one does not. */
char license_text[] __attribute__((section("license"), used)) = "GPL";

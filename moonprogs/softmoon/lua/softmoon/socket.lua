--- Packet sockets: one with a memory-mapped receive ring per device, one per transmit queue.
local ffi = require "ffi"
local kernel = require "softmoon.kernel"

local C, check = ffi.C, kernel.check
local socket = {}

local AF_PACKET, SOCK_RAW = 17, 3
local SOL_PACKET, SOL_SOCKET = 263, 1
local PACKET_ADD_MEMBERSHIP, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION = 1, 5, 6, 10
local PACKET_TX_RING, PACKET_VNET_HDR = 13, 15
local PACKET_QDISC_BYPASS, PACKET_IGNORE_OUTGOING = 20, 23
local SO_SNDTIMEO, SO_ATTACH_FILTER = 21, 26
local PACKET_MR_PROMISC, TPACKET_V2 = 1, 1
local ETH_P_ALL = 0x0003
local SIOCGIFFLAGS, SIOCGIFMTU, SIOCGIFHWADDR, SIOCGIFINDEX = 0x8913, 0x8921, 0x8927, 0x8933
local IFF_UP, IFF_RUNNING = 0x1, 0x40

-- a send that found no room for so long gives up and tells how much was accepted, so that no run hangs in it
socket.SEND_TIMEOUT_S = 0.1

local function setInt(fd, level, name, value, what)
	check(C.setsockopt(fd, level, name, ffi.new("int[1]", value), 4), what)
end

local function query(name, request)
	local fd = check(C.socket(AF_PACKET, SOCK_RAW, 0), "cannot open a packet socket (root is needed)")
	local ifreq = ffi.new("struct softmoon_ifreq")
	ffi.copy(ifreq.ifr_name, name:sub(1, 15))
	local result = C.ioctl(fd, request, ifreq)
	C.close(fd)
	return result == 0 and ifreq or nil
end

--- Index, MAC address (string) and MTU of an interface, or nil when this network namespace has none of that name.
function socket.interface(name)
	local index = query(name, SIOCGIFINDEX)
	if not index then
		return nil
	end
	local mac = query(name, SIOCGIFHWADDR).hwaddr.address
	return {
		index = index.number,
		mac = ("%02X:%02X:%02X:%02X:%02X:%02X"):format(mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]),
		mtu = query(name, SIOCGIFMTU).number,
	}
end

--- Whether the interface is up and has a carrier. Asked of the socket, because /sys may show another namespace.
function socket.isUp(name)
	local flags = query(name, SIOCGIFFLAGS)
	return flags ~= nil and bit.band(flags.flags, IFF_UP + IFF_RUNNING) == IFF_UP + IFF_RUNNING
end

local function bindTo(fd, index, protocol)
	local address = ffi.new("struct softmoon_sockaddr_ll")
	address.sll_family, address.sll_ifindex = AF_PACKET, index
	address.sll_protocol = bit.bor(bit.lshift(bit.band(protocol, 0xff), 8), bit.rshift(protocol, 8))
	check(C.bind(fd, address, ffi.sizeof(address)), "cannot bind to the interface")
end

-- Only untagged frames of these types, decided in the kernel: other traffic of the interface costs us nothing and is
-- not counted.
local function attachTypeFilter(fd, types)
	local LD_WORD_ABS, LD_HALF_ABS, JUMP_EQUAL, RETURN = 0x20, 0x28, 0x15, 0x06
	local VLAN_TAG_PRESENT = 0xfffff000 + 48
	local code = {
		{ LD_WORD_ABS, 0, 0, VLAN_TAG_PRESENT },
		{ JUMP_EQUAL, 0, #types + 1, 0 },
		{ LD_HALF_ABS, 0, 0, 12 },
	}
	for i, etherType in ipairs(types) do
		code[#code + 1] = { JUMP_EQUAL, #types - i + 1, 0, etherType }
	end
	code[#code + 1] = { RETURN, 0, 0, 0 }
	code[#code + 1] = { RETURN, 0, 0, 0xffffffff }
	local instructions = ffi.new("struct softmoon_bpf_insn[?]", #code)
	for i, insn in ipairs(code) do
		instructions[i - 1] = insn
	end
	local program = ffi.new("struct softmoon_bpf_program", #code, instructions)
	check(C.setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, program, ffi.sizeof(program)), "cannot filter received frames")
end

local function ringRequest(slots, slotSize)
	local blockSize = math.max(4096, slotSize)
	return ffi.new("struct softmoon_ring_request", blockSize, slots * slotSize / blockSize, slotSize, slots)
end

--- A socket that receives every frame of the interface but our own, or only those of `types`, into a ring.
function socket.openReceiver(interface, slots, slotSize, types)
	local fd = check(C.socket(AF_PACKET, SOCK_RAW, 0), "cannot open a packet socket (root is needed)")
	if types then
		attachTypeFilter(fd, types)
	end
	setInt(fd, SOL_PACKET, PACKET_VERSION, TPACKET_V2, "cannot set the ring version")
	setInt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1, "cannot ignore our own frames")
	local request = ringRequest(slots, slotSize)
	check(C.setsockopt(fd, SOL_PACKET, PACKET_RX_RING, request, ffi.sizeof(request)), "cannot create the receive ring")
	bindTo(fd, interface.index, ETH_P_ALL)
	local promiscuous = ffi.new("struct softmoon_packet_mreq", interface.index, PACKET_MR_PROMISC)
	check(C.setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, promiscuous, ffi.sizeof(promiscuous)),
		"cannot set the interface promiscuous")
	return fd
end

--- A socket that only sends, straight to the driver: a queueing discipline would hide that the interface is full. With
-- `slots`, from a ring.
function socket.openSender(interface, slots, slotSize)
	local fd = check(C.socket(AF_PACKET, SOCK_RAW, 0), "cannot open a packet socket (root is needed)")
	setInt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, 1, "cannot bypass the queueing discipline")
	local timeout = ffi.new("struct softmoon_timespec", 0, socket.SEND_TIMEOUT_S * 1e6) -- a timeval: microseconds
	check(C.setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, timeout, ffi.sizeof(timeout)), "cannot limit the time of a send")
	if slots then
		setInt(fd, SOL_PACKET, PACKET_VERSION, TPACKET_V2, "cannot set the ring version")
		setInt(fd, SOL_PACKET, PACKET_VNET_HDR, 1, "cannot use virtio headers")
		local request = ringRequest(slots, slotSize)
		check(C.setsockopt(fd, SOL_PACKET, PACKET_TX_RING, request, ffi.sizeof(request)), "cannot create the transmit ring")
	end
	bindTo(fd, interface.index, 0)
	return fd
end

function socket.mapRing(fd, length)
	local PROT_READ_WRITE, MAP_SHARED = 3, 1
	local address = C.mmap(nil, length, PROT_READ_WRITE, MAP_SHARED, fd, 0)
	if ffi.cast("intptr_t", address) == -1 then
		check(-1, "cannot map the receive ring")
	end
	return ffi.cast("uint8_t*", address)
end

--- Frames that found the ring full since the last call.
function socket.drops(fd)
	local stats, length = ffi.new("struct softmoon_packet_stats"), ffi.new("uint32_t[1]", 8)
	check(C.getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, stats, length), "cannot read the ring statistics")
	return stats.tp_drops
end

return socket

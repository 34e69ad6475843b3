--- Frame buffers and the Ethernet header in them.
local ffi = require "ffi"
local strict = require "softmoon.strict"
require "softmoon.kernel"
require "utils"

ffi.cdef[[
struct mempool;
struct softmoon_buf {
	uint8_t *data;
	uint32_t pkt_len;
	uint16_t data_len;
	uint16_t held;               /* of a ring buffer: the program has it */
	uint64_t udata64;            /* receive cycle count, after recvWithTimestamps */
	struct softmoon_slot *slot;  /* the ring slot it lies in, or NULL */
	struct mempool *pool;        /* the pool it belongs to, or NULL */
};
struct mempool {
	uint32_t free, size, buf_size;
	struct softmoon_buf **stack;
	struct softmoon_buf *bufs;
};
union mac_address { uint8_t uint8[6]; };
struct ethernet_header { union mac_address dst, src; uint16_t type; } __attribute__((packed));
union payload_t { uint8_t uint8[1]; } __attribute__((packed));
struct ethernet_packet { struct ethernet_header eth; union payload_t payload; } __attribute__((packed));
]]

local uint16Pointer, uint32Pointer = ffi.typeof("uint16_t*"), ffi.typeof("uint32_t*")
local uint64Pointer = ffi.typeof("uint64_t*")
local packetPointer = ffi.typeof("struct ethernet_packet*")

local address = strict({}, "mac_address:")
address.__index = address

--- The address as a number, first byte lowest.
function address:get()
	local bytes = self.uint8
	return ffi.cast(uint32Pointer, bytes)[0] + ffi.cast(uint16Pointer, bytes + 4)[0] * 2^32
end

function address:set(number)
	local bytes = self.uint8
	ffi.cast(uint32Pointer, bytes)[0] = number % 2^32
	ffi.cast(uint16Pointer, bytes + 4)[0] = math.floor(number / 2^32)
end

function address:getString()
	local b = self.uint8
	return ("%02x:%02x:%02x:%02x:%02x:%02x"):format(b[0], b[1], b[2], b[3], b[4], b[5])
end

function address:setString(text)
	self:set(parseMacAddress(text, true) or errorf("bad MAC address '%s'", text))
end

local header = strict({}, "ethernet_header:")
header.__index = header

function header:getDst() return self.dst:get() end
function header:getSrc() return self.src:get() end
function header:setDst(number) self.dst:set(number) end
function header:setSrc(number) self.src:set(number) end
function header:getType() return bswap16(self.type) end
function header:setType(etherType) self.type = bswap16(etherType) end

local function fillAddress(field, value)
	if type(value) == "string" then
		field:setString(value)
	elseif type(value) == "number" then
		field:set(value)
	else -- a device or one of its queues
		field:setString((rawget(value, "dev") or value):getMacString())
	end
end

--- Set all fields. Without ethSrc the source is MoonGen's default, which is a group address.
function header:fill(args)
	args = args or {}
	fillAddress(self.src, args.ethSrc or "01:02:03:04:05:06")
	fillAddress(self.dst, args.ethDst or "07:08:09:0a:0b:0c")
	self:setType(args.ethType or 0x0800)
end

local packet = strict({ fill = function(self, args) self.eth:fill(args) end }, "packet:")
packet.__index = packet

local buf = strict({}, "buf:")
buf.__index = buf

function buf:getData() return ffi.cast("void*", self.data) end
function buf:getBytes() return self.data end
function buf:getSize() return self.pkt_len end
function buf:setSize(size) self.pkt_len, self.data_len = size, size end
function buf:getEthernetPacket() return ffi.cast(packetPointer, self.data) end
buf.getEthPacket = buf.getEthernetPacket

--- The cycle count that sendWithTimestamp wrote.
function buf:getSoftwareTxTimestamp(offset)
	return ffi.cast(uint64Pointer, self.data)[(offset or 48) / 8]
end

--- Give the buffer back to its ring or pool.
function buf:free()
	if self.slot ~= nil then
		self.held = 0
		self.slot.tp_status = 0
	else
		local pool = self.pool
		pool.stack[pool.free] = self
		pool.free = pool.free + 1
	end
end

ffi.metatype("union mac_address", address)
ffi.metatype("struct ethernet_header", header)
ffi.metatype("struct ethernet_packet", packet)
ffi.metatype("struct softmoon_buf", buf)

return buf

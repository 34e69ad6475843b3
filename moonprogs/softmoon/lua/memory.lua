--- Pools of frame buffers, and arrays of buffers.
local ffi = require "ffi"
local strict = require "softmoon.strict"
local log = require "log"
require "packet"

local memory = {}
local anchors = {} -- C memory of the pools lives as long as the task

local mempool = strict({}, "mempool:")
mempool.__index = mempool

local bufArray = strict({}, "bufArray:")

local function poolArguments(first, second)
	if type(first) == "table" then
		return first
	elseif type(first) == "function" then
		return { func = first }
	end
	return { n = first, func = type(second) == "function" and second or nil }
end

--- A pool: createMemPool(func), createMemPool(n, func) or createMemPool{n=2047, func=, bufSize=2048}.
function memory.createMemPool(...)
	local args = poolArguments(...)
	local n, size = args.n or 2047, args.bufSize or 2048
	-- a power of two apart, all buffers would compete for the same few lines of the CPU's cache
	local stride = size + 64
	local data = ffi.new("uint8_t[?]", n * stride)
	local bufs = ffi.new("struct softmoon_buf[?]", n)
	local stack = ffi.new("struct softmoon_buf*[?]", n)
	local pool = ffi.new("struct mempool", n, n, size, stack, bufs)
	anchors[#anchors + 1] = { data, bufs, stack, pool }
	for i = 0, n - 1 do
		bufs[i].data, bufs[i].pool = data + i * stride, pool
		stack[i] = bufs + i
		if args.func then
			bufs[i]:setSize(1522)
			args.func(bufs[i])
		end
	end
	return pool
end

function mempool:alloc(size)
	if self.free == 0 then
		log:fatal("softmoon: the memory pool is empty: buffers were received or allocated and never freed")
	elseif size > self.buf_size then
		log:fatal("softmoon: a frame of %d bytes does not fit the pool's buffers of %d bytes", size, self.buf_size)
	end
	self.free = self.free - 1
	local buf = self.stack[self.free]
	buf:setSize(size)
	return buf
end

local function newArray(n, pool)
	return setmetatable({ size = n, maxSize = n, array = ffi.new("struct softmoon_buf*[?]", n), mem = pool }, bufArray)
end

function mempool:bufArray(n)
	return newArray(n or 63, self)
end

function memory.bufArray(n)
	return newArray(n or 63, nil)
end
memory.createBufArray = memory.bufArray

--- Fill the array with buffers of the pool. `size` is that of the frames, without CRC.
function bufArray:alloc(size)
	local pool = rawget(self, "mem") or log:fatal("buf array not associated with a memory pool")
	for i = 0, self.size - 1 do
		self.array[i] = pool:alloc(size)
	end
end

function bufArray:free(n)
	for i = 0, n - 1 do
		if self.array[i] ~= nil then
			self.array[i]:free()
			self.array[i] = nil
		end
	end
end

function bufArray:freeAll()
	for i = 0, self.size - 1 do
		if self.array[i] == nil then
			return
		end
		self.array[i]:free()
		self.array[i] = nil
	end
end

function bufArray.__index(self, key)
	if type(key) == "number" then
		return self.array[key - 1]
	end
	return bufArray[key]
end

function bufArray.__newindex(self, key, value)
	self.array[key - 1] = value
end

function bufArray.__len(self)
	return self.size
end

ffi.metatype("struct mempool", mempool)

return strict(memory, "memory.")

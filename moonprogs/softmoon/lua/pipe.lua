--- Pipes between tasks. Only slow ones: what is sent travels as text.
local ffi = require "ffi"
local kernel = require "softmoon.kernel"
local serialize = require "softmoon.serialize"
local shared = require "softmoon.shared"
local strict = require "softmoon.strict"

local C = ffi.C
local pipe = {}

local AF_UNIX, SOCK_SEQPACKET = 1, 5
-- the kernel's default limit of what a socket holds
local LARGEST = 200e3

local slowPipe = strict({}, "slowPipe:")
slowPipe.__index = slowPipe

local function wrap(input, output)
	return setmetatable({ input = input, output = output }, slowPipe)
end

--- A pipe for messages, each of any values that can be handed to a task. To be created before the tasks that use it.
function pipe:newSlowPipe()
	local fds = ffi.new("int[2]")
	kernel.check(C.socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), "cannot create a pipe")
	return wrap(fds[0], fds[1])
end

--- The pipe in another task, which has inherited its file descriptors.
function pipe.adopt(input, output) return wrap(input, output) end

function slowPipe:__serialize()
	return ("require'pipe'.adopt(%d,%d)"):format(self.input, self.output)
end

function slowPipe:send(...)
	local text = serialize.dump(...)
	kernel.check(C.send(self.input, text, #text, 0), "cannot send on a pipe")
end

--- The values of the next message, nothing when none came within `waitUs` microseconds (default 0).
function slowPipe:tryRecv(waitUs)
	if waitUs and waitUs > 0 then
		kernel.wait(self.output, kernel.POLLIN, waitUs * 1e3)
	end
	local buffer = rawget(self, "buffer") or ffi.new("uint8_t[?]", LARGEST)
	self.buffer = buffer
	local n = tonumber(C.recv(self.output, buffer, LARGEST, kernel.MSG_DONTWAIT))
	if n > 0 then
		return serialize.load(ffi.string(buffer, n))
	end
end

--- The values of the next message; nothing when the run stops before one comes.
function slowPipe:recv()
	repeat
		local values = { self:tryRecv(10000) }
		if #values > 0 then
			return unpack(values, 1, table.maxn(values))
		end
	until not shared.running()
end

return strict(pipe, "pipe.")

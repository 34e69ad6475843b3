--- What the processes of one run share: when to stop, and the frame counters of every queue.
local ffi = require "ffi"
local kernel = require "softmoon.kernel"

local C = ffi.C
local shared = { MAX_PORTS = 8, MAX_QUEUES = 16 }

ffi.cdef[[
struct softmoon_queue_counters { volatile double frames, bytes; };
struct softmoon_port_counters {
	struct softmoon_queue_counters rx[16], tx[16];
	volatile double missed;
};
struct softmoon_shared {
	volatile double stopAt, signalAt;
	struct softmoon_port_counters ports[8];
};
]]

local SIZE = ffi.sizeof("struct softmoon_shared")
local state

local function map(fd)
	local PROT_READ_WRITE, MAP_SHARED = 3, 1
	local address = C.mmap(nil, SIZE, PROT_READ_WRITE, MAP_SHARED, fd, 0)
	if ffi.cast("intptr_t", address) == -1 then
		kernel.check(-1, "cannot map the shared state")
	end
	state = ffi.cast("struct softmoon_shared*", address)
	shared.state = state
end

--- Create the shared state; returns the file descriptor by which other processes of the run attach to it.
function shared.create()
	local fd = kernel.check(C.memfd_create("softmoon", 0), "cannot create the shared state")
	kernel.check(C.ftruncate(fd, SIZE), "cannot size the shared state")
	map(fd)
	state.stopAt, state.signalAt = math.huge, math.huge
	return fd
end

function shared.attach(fd)
	map(fd)
end

function shared.port(port)
	return state.ports[port]
end

--- False once a signal came, the run time is over or a task called stop, all plus `extraMs`.
function shared.running(extraMs)
	local time = kernel.seconds() - (extraMs or 0) * 1e-3
	return time < state.stopAt and time < state.signalAt
end

function shared.stopIn(seconds)
	state.stopAt = kernel.seconds() + seconds
end

function shared.signalled()
	if state.signalAt < math.huge then
		return true
	end
	state.signalAt = kernel.seconds()
	return false
end

return shared

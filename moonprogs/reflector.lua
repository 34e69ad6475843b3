--- Layer-2 reflector: sends test frames back to where they came from, and leaves all other frames alone.
local mg     = require "moongen"
local device = require "device"
local memory = require "memory"
local log    = require "log"

local ETHERTYPE_LOAD, ETHERTYPE_SAMPLE = 0x1234, 0x88f7

-- How long one wait for frames may take. MoonGen spends it polling and softmoon asleep; it bounds the time that an
-- idle reflector takes to notice a signal.
local MAX_WAIT_US = 100000

local function portNumber(text)
	local port = tonumber(text)
	if not port or port < 0 or port % 1 ~= 0 then
		return nil, ("dev must be a port number, not '%s'"):format(text)
	end
	return port
end

function configure(parser)
	parser:description("Reflects test frames (type 0x1234) and timestamp frames (0x88f7) with their MAC addresses swapped.")
	parser:argument("dev", "Port to reflect on."):convert(portNumber)
	return parser:parse()
end

function master(args)
	-- two queue pairs: on interfaces with two, the kernel may hand a frame to either
	local dev = device.config{
		port = args.dev, rxQueues = 2, txQueues = 2, etherTypes = { ETHERTYPE_LOAD, ETHERTYPE_SAMPLE }
	}
	if device.waitForLinks() == 0 then
		log:warn("The link of port %d is down", args.dev)
	end
	local task = mg.startTask("reflect", dev:getRxQueue(0), dev:getRxQueue(1), dev:getTxQueue(0))
	local reflected = task:wait()
	if not reflected then
		error("the reflector task failed", 0)
	end
	log:info("Reflected %d frames", reflected)
end

-- Move the test frames among the first n of `bufs` to `out` with addresses swapped, free the others; returns how many.
local function turnRound(bufs, out, n)
	local count = 0
	for i = 1, n do
		local buf = bufs[i]
		local eth = buf:getEthernetPacket().eth
		local etherType = eth:getType()
		if etherType == ETHERTYPE_LOAD or etherType == ETHERTYPE_SAMPLE then
			local destination = eth:getDst()
			eth:setDst(eth:getSrc())
			eth:setSrc(destination)
			count = count + 1
			out[count] = buf
		else
			buf:free()
		end
	end
	return count
end

--- Task: reflect until the program is stopped; returns the number of frames sent back.
function reflect(rxQueue, otherRxQueue, txQueue)
	local bufs, out = memory.bufArray(), memory.bufArray()
	local reflected = 0
	log:info("reflector ready")
	while mg.running() do
		-- the second queue is empty where softmoon runs, and must not delay the first where MoonGen does
		local n = otherRxQueue:tryRecv(bufs, 0)
		if n == 0 then
			n = rxQueue:tryRecv(bufs, otherRxQueue.alwaysEmpty and MAX_WAIT_US or 0)
		end
		local count = turnRound(bufs, out, n)
		if count > 0 then
			reflected = reflected + txQueue:sendN(out, count)
		end
	end
	return reflected
end

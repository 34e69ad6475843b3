--- A known truth: a reflector that holds each frame for a time, counted from when it took the frame.
local mg     = require "moongen"
local device = require "device"
local memory = require "memory"
local log    = require "log"

local ETHERTYPE_LOAD, ETHERTYPE_SAMPLE = 0x1234, 0x88f7
local ROOM = 2048 -- frames held at once; half of softmoon's receive ring, in which they stay

function configure(parser)
	parser:argument("dev", "Port to reflect on."):convert(tonumber)
	parser:argument("hold", "Microseconds."):convert(tonumber)
	return parser:parse()
end

function master(args)
	local dev = device.config{ port = args.dev, etherTypes = { ETHERTYPE_LOAD, ETHERTYPE_SAMPLE } }
	device.waitForLinks()
	if not mg.startTask("reflect", dev:getRxQueue(0), dev:getTxQueue(0), args.hold * 1e-6):wait() then
		error("the reflector task failed", 0)
	end
end

local function turnRound(buf)
	local eth = buf:getEthernetPacket().eth
	local destination = eth:getDst()
	eth:setDst(eth:getSrc())
	eth:setSrc(destination)
end

--- Task: reflect until the program is stopped. It polls: asleep it would release frames later than it says.
function reflect(rxQueue, txQueue, hold)
	local taken, out = memory.bufArray(), memory.bufArray(1)
	local held, due, first, last = {}, {}, 0, 0 -- of frame i at i modulo ROOM, from first to last - 1
	log:info("reflector ready")
	while mg.running() do
		local n = rxQueue:tryRecv(taken, 0)
		local now = mg.getTime()
		for i = 1, n do
			turnRound(taken[i])
			held[last % ROOM], due[last % ROOM] = taken[i], now + hold
			last = last + 1
		end
		assert(last - first <= ROOM, "more frames than there is room for")
		while first < last and due[first % ROOM] <= now do
			out[1] = held[first % ROOM]
			first = first + 1
			txQueue:sendN(out, 1)
		end
	end
	return true
end

--- The test frames of l2-load-latency.lua: types, layout, and buffers for them.
local memory = require "memory"
local ffi    = require "ffi"

local uint32 = ffi.typeof("uint32_t*")

local frame = {}

frame.LOAD, frame.SAMPLE = 0x1234, 0x88f7

-- Bytes without the CRC.
frame.MIN_SIZE, frame.MAX_SIZE = 60, 9014

-- All within the smallest frame: run tag at byte 16, index of the guest at 20, send time at 48 (where MoonGen's
-- sendWithTimestamp puts it), sequence number of a sample at 56. In units of 4 bytes:
frame.TAG_WORD, frame.GUEST_WORD, frame.SEQUENCE_WORD = 4, 5, 14

--- A pool of frames of one type, `largest` bytes or less, to the first guest; where others of several go is written before they
-- are sent.
function frame.newPool(dev, args, etherType, largest)
	return memory.createMemPool{
		bufSize = largest <= 1514 and 2048 or math.floor((largest + 1023) / 1024) * 1024 + 1024,
		func = function(buf)
			buf:getEthernetPacket():fill{ ethSrc = dev, ethDst = args.addresses[1], ethType = etherType }
			local words = ffi.cast(uint32, buf:getData())
			words[frame.TAG_WORD], words[frame.GUEST_WORD] = args.tag, 0
		end
	}
end

return frame

--- Hardware timestamps, which no interface here has.
local strict = require "softmoon.strict"

local timestamping = {}

--- Fatal, as on any MoonGen device without hardware timestamps.
function timestamping:newTimestamper(txQueue, rxQueue)
	txQueue:enableTimestamps()
	rxQueue:enableTimestamps()
end

return strict(timestamping, "timestamping.")

--- Timers on the monotonic clock.
local mg = require "moongen"
local strict = require "softmoon.strict"

local timer = strict({}, "timer:")
timer.__index = timer

function timer:new(seconds)
	return setmetatable({ seconds = seconds or 0, stop = mg.getTime() + (seconds or 0) }, timer)
end

function timer:running() return mg.getTime() < self.stop end
function timer:expired() return not self:running() end
function timer:reset(seconds)
	self.seconds = seconds or self.seconds
	self.stop = mg.getTime() + self.seconds
end

--- Busy-wait until the timer expires or the run stops.
function timer:wait()
	while self:running() and mg.running() do end
end

return timer

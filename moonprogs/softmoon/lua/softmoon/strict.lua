--- Tables whose missing entries fail by name: a program that needs more than softmoon offers must say what.
return function(members, prefix)
	return setmetatable(members, { __index = function(_, key)
		error(("softmoon: %s%s is not supported"):format(prefix, tostring(key)), 2)
	end })
end

-- Events without a database; each tenth meets a deadlock and is begun again.
local begun = 0
function event()
   begun = begun + 1
   if begun % 10 == 0 then
      error({ errcode = sysbench.error.RESTART_EVENT })
   end
end

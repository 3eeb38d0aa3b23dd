# Completes sonobuoy in PowerShell; `sonobuoy __complete` knows the words.
Register-ArgumentCompleter -Native -CommandName 'sonobuoy' -ScriptBlock {
    param($word, $line, $cursor)
    $words = @($line.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.EndOffset -lt $cursor } | ForEach-Object { "$_" })
    # Before 7.3 an empty argument is lost unless it is quoted twice.
    $last = if ($word -or $PSNativeCommandArgumentPassing -in 'Standard', 'Windows') { "$word" } else { '""' }
    $prefix = if ($word -match '^-[^=]*=') { $Matches[0] } else { '' }
    sonobuoy __complete @words $last 2>$null | Where-Object { $_ -notmatch '^:\d+$' } | ForEach-Object {
        $name, $about = $_ -split "`t", 2
        if (-not $about) { $about = $name }
        [System.Management.Automation.CompletionResult]::new("$prefix$name", $name, 'ParameterValue', $about)
    }
}
